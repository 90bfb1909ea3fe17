"""Searches, which clients may continue, for the first difference between a value here and one on another node."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from relay_agent.node.in_agent.answers.comparison import Process
from relay_core.agent_api.evaluation import Evaluate, SearchStart, SearchStep, Selection, Value
from relay_core.difference_search import PairedSearch, first_parts
from relay_core.errors import ConfigurationError

__all__ = ["OfferedSearches"]

MAX_SEARCHES = 256
"""Maximum number of searches that are kept, each a few KiB in size: enough for the latest comparisons by a few
clients."""
MAX_TOKEN = 1 << 16


class OfferedSearches:
    """The searches of one agent."""

    def __init__(self) -> None:
        self._tokens = itertools.count()
        self._searches: dict[int, tuple[Process, Evaluate, PairedSearch]] = {}
        """By token, the oldest first."""

    def __repr__(self) -> str:
        return f"<OfferedSearches {len(self._searches)}>"

    def offer(self, request: Evaluate, processes: Sequence[Process], values: Sequence[Value]) -> tuple[Value, ...]:
        """Return the values with a search in place of the checksums and the description of their parts.

        Values are returned unchanged unless the request is a message and compares complete values.

        Args:
            request: The request.
            processes: All processes that were asked.
            values: Their values.
        """
        if not request.is_message or request.selection != Selection():
            return tuple(values)
        by_port = {process.logical_port: process for process in processes}
        return tuple(
            replace(
                value,
                parts=(),
                leaf=None if value.parts else value.leaf,
                starts=(self._add(by_port[value.members[0].port], request, value),),
            )
            if value.digest
            else value
            for value in values
        )

    async def answer(self, step: SearchStep) -> bytes:
        """Return the message for the agent of the other value, or for the client.

        Raises:
            ConfigurationError: the search has expired.
        """
        if step.token not in self._searches:
            raise ConfigurationError("the comparison has expired", hint="compare the value again")
        process, request, search = self._searches[step.token]
        answering = search.answer(step.data)
        try:
            selection = next(answering)
            while True:
                selection = answering.send(await process.evaluate(replace(request, selection=selection)))
        except StopIteration as answered:
            return bytes(answered.value)

    def _add(self, process: Process, request: Evaluate, value: Value) -> SearchStart:
        token = next(self._tokens) % MAX_TOKEN
        self._searches.pop(token, None)
        self._searches[token] = (process, request, PairedSearch(value))
        while len(self._searches) > MAX_SEARCHES:
            del self._searches[next(iter(self._searches))]
        return SearchStart(value.members[0].port, token, first_parts(value))

"""Compares a value across the processes of this node, and with other nodes in searches that clients continue."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from relay_core.agent_api.evaluation import Difference, Evaluate, SearchStart, SearchStep, Selection, Value
from relay_core.agent_api.members import grouped
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.difference_search import PairedSearch, Search, first_parts
from relay_core.errors import ConfigurationError

__all__ = ["SEARCH_SECONDS", "OfferedSearches", "Process", "collect_values"]


SEARCH_SECONDS = 5.0
"""Time limit for all searches together: shorter than the time for which a client still waits after the time limit of
the processes. If the agent has no result by then, the client searches.
"""


class Process(Protocol):
    """A process that evaluates expressions."""

    @property
    def logical_port(self) -> int:
        """The logical port of the process, as in the members of its values."""

    async def evaluate(self, request: Evaluate) -> Value:
        """Return the value of an expression in the process, or why there is none."""


async def collect_values(request: Evaluate, processes: Sequence[Process]) -> tuple[Value, ...]:
    """Return the values in the chosen processes; equal values are returned once.

    If the request compares complete values, each value except the most common one includes its first difference from
    the most common one.
    """
    values = await asyncio.gather(*(process.evaluate(request) for process in processes))
    if request.selection == Selection():
        values = await _with_differences(request, processes, values)
    return grouped(values)


async def _with_differences(request: Evaluate, processes: Sequence[Process], values: Sequence[Value]) -> list[Value]:
    groups: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        if not value.error:
            groups.setdefault(value.digest, []).append(index)
    found = list(values)
    usual = max(groups.values(), key=lambda group: (len(group), group), default=[])

    async def search(group: list[int]) -> None:
        one, other = group[0], usual[0]
        difference = await _search(request, (processes[one], processes[other]), (values[one], values[other]))
        for index in group:
            found[index] = replace(values[index], difference=difference)

    with contextlib.suppress(*TIMEOUT_ERRORS):
        async with timeout(SEARCH_SECONDS):
            await asyncio.gather(*(search(group) for group in groups.values() if group is not usual))
    return found


async def _search(request: Evaluate, pair: tuple[Process, Process], values: tuple[Value, Value]) -> Difference:
    """Return the first difference between the values of two processes."""
    first, second = pair
    search = Search(*values)
    while (selection := search.next()) is not None:
        part = replace(request, selection=selection)
        search.received(*await asyncio.gather(first.evaluate(part), second.evaluate(part)))
    assert search.difference is not None  # noqa: S101 - this is how a search ends
    return replace(search.difference, other=values[1].digest)


# Searches, which clients may continue, for the first difference between a value here and one on another node.

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

"""Compares a value across the processes of this node, so that only the first difference is sent to the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from relay_core.agent_api.evaluation import Difference, Evaluate, Selection, Value
from relay_core.agent_api.members import grouped
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.difference_search import Search

__all__ = ["SEARCH_SECONDS", "Process", "collect_values"]

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

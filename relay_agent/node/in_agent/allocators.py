"""Asks the processes of a node, for each sample of the monitor, how much memory torch's allocator uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from relay_core.agent_api.usage import AllocatorUsage
from relay_core.net.tasks import TaskSet

__all__ = ["ALLOCATOR_TIMEOUT", "Allocators", "Process"]

ALLOCATOR_TIMEOUT = 0.5
"""Seconds that a sample waits for the answers. A process needs 1 ms unless C code holds the GIL."""


class Process(Protocol):
    """A process that can be asked for the memory usage of its allocator."""

    @property
    def logical_port(self) -> int:
        """The logical port of the process."""

    async def allocator(self) -> AllocatorUsage | None:
        """Return the memory usage of the allocator; None if the process does not report any."""


class Allocators:
    """The allocators of the processes of a node.

    A process is not asked again until it has answered, so that requests do not accumulate during a long call into C
    code, and no sample waits for it twice.

    Args:
        processes: Returns the current processes.
        timeout: Seconds that `read` waits for answers.
    """

    def __init__(self, processes: Callable[[], Sequence[Process]], *, timeout: float = ALLOCATOR_TIMEOUT) -> None:
        self._processes = processes
        self._timeout = timeout
        self._tasks = TaskSet()
        self._asked: dict[Process, asyncio.Task[AllocatorUsage | None]] = {}

    def __repr__(self) -> str:
        return f"<Allocators, {len(self._tasks)} pending>"

    async def read(self) -> dict[int, AllocatorUsage]:
        """Return the memory usage of the processes that report it in time, by port."""
        pending = {process: task for process, task in self._asked.items() if not task.done()}
        asked = {
            process: self._tasks.spawn(process.allocator(), name=f"allocator of {process}")
            for process in self._processes()
            if process not in pending
        }
        self._asked = {**pending, **asked}
        if asked:
            await asyncio.wait(asked.values(), timeout=self._timeout)
        answers = {process.logical_port: _result(task) for process, task in asked.items()}
        return {port: found for port, found in answers.items() if found is not None}

    async def close(self) -> None:
        """Stop waiting for answers."""
        await self._tasks.cancel_all()


def _result(task: asyncio.Task[AllocatorUsage | None]) -> AllocatorUsage | None:
    return task.result() if task.done() and not task.cancelled() and task.exception() is None else None

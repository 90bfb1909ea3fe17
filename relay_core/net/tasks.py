"""The one place that starts asyncio tasks: named, kept alive, and never silent when they crash."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

__all__ = ["TaskSet", "cancel_and_wait", "run_together"]

logger = logging.getLogger(__name__)


class TaskSet:
    """Tasks that belong to one owner and end with it.

    A task that raises is logged with its traceback and does not disturb its siblings. Leaving the `async with`
    block cancels what still runs and waits for it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"<TaskSet {sorted(task.get_name() for task in self._tasks)}>"

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start a task that this set keeps until it is done."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def cancel_all(self) -> None:
        """Cancel every task and wait until each has ended."""
        await cancel_and_wait(*self._tasks)

    async def __aenter__(self) -> TaskSet:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cancel_all()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task %s crashed", task.get_name(), exc_info=error)


async def run_together(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run coroutines at the same time until all are done; the first error cancels the others and is raised."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(coroutine, name=getattr(coroutine, "__name__", "part")) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end; their own errors are theirs (a TaskSet logs them)."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)

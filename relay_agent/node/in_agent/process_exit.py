"""Waiting for the exit of a process that is not a child."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType

from relay_agent.node.other_process import read_status

__all__ = ["ProcessExit", "until_exit"]

POLL_INTERVAL = 1.0
"""Seconds between checks on systems without pidfd."""
STATUS_INTERVAL = 0.002
"""Seconds between readings of the status on a system where it disappears with the process. The status can be read while
the process releases its memory, which takes a few milliseconds for a small process."""


async def until_exit(pid: int) -> None:
    """Return when a process has exited: immediately if pidfd exists (Linux 5.3), otherwise within a second."""
    with ProcessExit(pid) as process:
        await process.wait()


class ProcessExit:
    """Waits for the exit of one process; a context manager that must be entered while the process is running."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._has_ended = False
        self._descriptor: int | None = None
        if hasattr(os, "pidfd_open"):
            try:
                self._descriptor = os.pidfd_open(pid)
            except OSError:  # it has already ended
                self._has_ended = True

    def __repr__(self) -> str:
        return f"<ProcessExit of {self._pid}>"

    def __enter__(self) -> ProcessExit:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    async def wait(self) -> None:
        """Return when the process has exited."""
        if self._descriptor is None:
            while not self._has_ended and _exists(self._pid):  # noqa: ASYNC110 - the system offers no event
                await asyncio.sleep(POLL_INTERVAL)
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._descriptor)

    async def status(self, *, within: float) -> int | None:
        """Wait until the process has exited, and return its wait status.

        None if the status is unknown or the process is still running.
        """
        deadline = asyncio.get_running_loop().time() + within
        status = None
        while True:
            is_over, found = read_status(self._pid, self._descriptor)
            status = status if found is None else found
            if is_over:
                return status
            if asyncio.get_running_loop().time() > deadline:
                return None
            await asyncio.sleep(STATUS_INTERVAL)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

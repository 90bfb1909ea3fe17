"""Waiting for the exit of a process that is not a child."""

from __future__ import annotations

import asyncio
import os

__all__ = ["until_exit"]

POLL_INTERVAL = 1.0
"""Seconds between checks where the system has no pidfd."""


async def until_exit(pid: int) -> None:
    """Return when a process has ended: at once where pidfd exists (Linux 5.3), otherwise within a second."""
    if not hasattr(os, "pidfd_open"):
        while _exists(pid):  # noqa: ASYNC110 - without pidfd the system offers no event
            await asyncio.sleep(POLL_INTERVAL)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # it has already ended
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

"""Releases child processes that wait for their own debug session.

With `--debug-follow-children`, debugpy makes each child process of a job wait for a debug session. The prompt debugs
only one process, so it attaches to each child and detaches immediately.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from relay_client.dap.client import DapClient
from relay_core.errors import RelayDebugError

__all__ = ["Connect", "release_child"]

RESPONSE_TIMEOUT = 30.0
"""Seconds to wait for each response from a child; a child that is waiting for a session is otherwise idle."""

Connect = Callable[[], Awaitable[DapClient]]
"""Opens a new connection to the job's debug adapter."""

logger = logging.getLogger(__name__)


async def release_child(connect: Connect, pid: int) -> None:
    """Let a waiting child process continue without a debugger."""
    try:
        async with await connect() as client:
            await client.attach({}, exceptions=[], within=RESPONSE_TIMEOUT, subProcessId=pid)
            await client.request("disconnect", {"terminateDebuggee": False}, within=RESPONSE_TIMEOUT)
    except RelayDebugError as error:  # the child or the job has exited
        logger.debug("process %d was not released: %s", pid, error)

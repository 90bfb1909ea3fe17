"""Child processes that a job offers to its debugger: each waits for a session of its own, and is let go by one.

debugpy announces them where the job was started with `--debug-follow-children`, and a prompt is for one process.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from relay_client.dap.client import DapClient
from relay_core.errors import RelayDebugError

__all__ = ["Connect", "let_go"]

PATIENCE = 30.0
"""Seconds for each answer of a child; it has nothing else to do."""

Connect = Callable[[], Awaitable[DapClient]]
"""Opens another connection to the job's debug adapter."""

logger = logging.getLogger(__name__)


async def let_go(connect: Connect, pid: int) -> None:
    """Let a child process run, without a debugger."""
    try:
        async with await connect() as client:
            await client.attach({}, exceptions=[], within=PATIENCE, subProcessId=pid)
            await client.request("disconnect", {"terminateDebuggee": False}, within=PATIENCE)
    except RelayDebugError as error:  # it has ended, or the job has
        logger.debug("process %d was not let go: %s", pid, error)

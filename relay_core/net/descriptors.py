"""Open descriptors: a higher limit, and one log line instead of asyncio's tracebacks when there are none left.

A program that has none left keeps its connections. asyncio stops accepting for a second, and reports that up to a
hundred times for each local port and second, every time with a traceback.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from typing import Any

if sys.platform != "win32":
    import resource

__all__ = ["EXHAUSTED", "log_exhaustion", "raise_descriptor_limit"]

ENOUGH_DESCRIPTORS = 65536
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` and `connect` that mean that this process or its system has run out of something."""
LOG_INTERVAL = 60.0
"""Seconds between two log lines about it."""

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors as far as the system allows without privileges."""
    if sys.platform == "win32":  # has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS has another limit of its own
        logger.warning("the limit of open descriptors stays at %d: %s", soft, error)


def log_exhaustion(loop: asyncio.AbstractEventLoop) -> None:
    """Log one line when a port of this loop cannot accept a connection because no descriptor is left."""
    last_logged = -LOG_INTERVAL

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last_logged
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in EXHAUSTED:
            loop.default_exception_handler(context)
        elif loop.time() - last_logged >= LOG_INTERVAL:
            last_logged = loop.time()
            logger.warning("new connections have to wait: no descriptors left. hint: raise the limit (ulimit -n)")

    loop.set_exception_handler(handle)

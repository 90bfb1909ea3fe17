"""Open file descriptors: raises their limit, and logs one line instead of asyncio's tracebacks when none are left.

A program with no descriptors left keeps its connections. asyncio stops accepting for a second and reports this with a
traceback, up to a hundred times per second for each local port.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

__all__ = ["EXHAUSTED", "log_exhaustion", "raise_descriptor_limit"]

ENOUGH_DESCRIPTORS = 65536
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` and `connect` that indicate exhausted resources of this process or the system."""
LOG_INTERVAL = 60.0
"""Minimum number of seconds between two of these log lines."""

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors as far as possible without privileges."""
    try:
        import resource  # noqa: PLC0415 - Windows has neither the module nor such a limit
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS has an additional limit of its own
        logger.warning("cannot raise the limit on open file descriptors above %d: %s", soft, error)


def log_exhaustion(loop: asyncio.AbstractEventLoop) -> None:
    """Log one line when a port of this loop cannot accept a connection because no descriptor is left."""
    last_logged = -LOG_INTERVAL
    previous = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last_logged
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in EXHAUSTED:
            (previous or type(loop).default_exception_handler)(loop, context)
        elif loop.time() - last_logged >= LOG_INTERVAL:
            last_logged = loop.time()
            logger.warning("new connections must wait: no file descriptors left. hint: raise the limit (ulimit -n)")

    loop.set_exception_handler(handle)

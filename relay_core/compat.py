"""Compatibility with older versions of Python.

All deadlines use `async with timeout(seconds)`. Up to Python 3.11, `asyncio.wait_for` can lose a cancellation that
arrives at the same moment as the result (python/cpython#86296), and the task is then never cancelled.
"""

from __future__ import annotations

import asyncio
import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["TIMEOUT_ERRORS", "timeout"]

TIMEOUT_ERRORS = (asyncio.TimeoutError, TimeoutError)
"""Exceptions that `timeout()` raises: two classes on Python 3.10, one class since 3.11."""

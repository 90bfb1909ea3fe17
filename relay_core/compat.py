"""The one place that knows what older Pythons lack.

Deadlines are `async with timeout(seconds)` everywhere: up to Python 3.11 `asyncio.wait_for` forgets that it was
cancelled if what it waits for happens at the same moment (python/cpython#86296), and then the task runs on for ever.
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
"""What `timeout()` may raise: two classes on Python 3.10, one since 3.11."""

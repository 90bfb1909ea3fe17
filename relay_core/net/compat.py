"""The one place that knows what Python 3.10 lacks."""

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

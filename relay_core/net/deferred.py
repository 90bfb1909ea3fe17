"""Defers work to the next iteration of the event loop, so that events which arrive together are handled together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Deferred"]


class Deferred:
    """Calls a function once in the next iteration of the event loop, however often the call is requested until then.

    Args:
        callback: Called in the event loop; it may request the next call.
    """

    def __init__(self, callback: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._is_requested = False

    def __repr__(self) -> str:
        return f"<Deferred {'requested' if self._is_requested else 'not requested'}>"

    def request(self) -> None:
        """Call the function in the next iteration."""
        if not self._is_requested:
            self._is_requested = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._is_requested = False
        self._callback()

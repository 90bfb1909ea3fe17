"""Ends the debugger before eventlet patches the standard library.

debugpy does not work with eventlet: the locks of debugpy's threads would become eventlet's, which work within one
thread only, and the job's main thread would wait for them without limit, even at a line without a breakpoint.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType

from relay_agent.import_hook import after_import

__all__ = ["HINT", "install"]

HINT = "leave out monkey_patch() in the debug run, or use gevent or asyncio, as eventlet's authors recommend"
_PATCH = "monkey_patch"


def install(*, before_patch: Callable[[], None]) -> None:
    """Make `eventlet.monkey_patch` call a function first; that function is replaced when the job imports eventlet."""
    after_import("eventlet.patcher", lambda patcher: _wrap(patcher, before_patch))


def _wrap(patcher: ModuleType, before_patch: Callable[[], None]) -> None:
    patch = vars(patcher)[_PATCH]
    if hasattr(patch, "__wrapped__"):  # by an earlier call
        return

    @functools.wraps(patch)
    def end_and_patch(*arguments: object, **named: object) -> object:
        before_patch()
        return patch(*arguments, **named)

    for module in (patcher, sys.modules.get("eventlet")):
        if module is not None and vars(module).get(_PATCH) is patch:
            setattr(module, _PATCH, end_and_patch)

"""Ends the debugger before eventlet or gevent patches the threads under it, where the job would otherwise hang.

The locks of debugpy's threads would become the library's, and the threads would no longer respond. With eventlet, the
job's main thread then waits for them without limit, even at a line without a breakpoint. With gevent, the job continues
up to Python 3.12; later versions wait for a thread of debugpy at the exit. debugpy alone behaves in the same way,
except with `GEVENT_SUPPORT` (seen with debugpy 1.8.22, eventlet 0.41 and gevent 26.9).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType

from relay_agent.debuggee import gevent_support
from relay_agent.import_hook import after_import

__all__ = ["EVENTLET", "EVENTLET_HINT", "install"]

EVENTLET = "debugpy does not work with eventlet"
EVENTLET_HINT = "leave out monkey_patch() in the debug run, or use gevent or asyncio, as eventlet's authors recommend"
_replaced: list[ModuleType] = []
"""The modules whose function was replaced."""


def install(*, before_patch: Callable[[str], None]) -> None:
    """Make the functions that patch threads call another function first; they are replaced when they are imported.

    Args:
        before_patch: Receives the reason and a hint.
    """
    reason = f"{EVENTLET}. hint: {EVENTLET_HINT}"
    after_import("eventlet.patcher", lambda module: _wrap(module, "monkey_patch", lambda: before_patch(reason)))
    if gevent_support.HANGS_AFTER_LATE_PATCH:
        late = (
            "gevent patches the standard library under it, and the job would not exit. hint: use Python 3.11 while you "
            "debug"
        )
        after_import("gevent.monkey", lambda module: _wrap(module, "patch_thread", lambda: before_patch(late)))


def _wrap(module: ModuleType, name: str, before: Callable[[], None]) -> None:
    function = vars(module)[name]
    if module in _replaced:
        return
    _replaced.append(module)

    @functools.wraps(function)
    def end_and_patch(*arguments: object, **named: object) -> object:
        before()
        return function(*arguments, **named)

    package = sys.modules.get(module.__name__.partition(".")[0])
    for each in (module, package):
        if each is not None and vars(each).get(name) is function:
            setattr(each, name, end_and_patch)

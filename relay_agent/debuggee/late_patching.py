"""Ends the debugger before eventlet or gevent patches the threads under it, where the job would be harmed.

The locks of debugpy's threads would become the library's. With eventlet, the job's main thread then waits for those
threads without limit, even at a line without a breakpoint. With gevent, the job continues, but it does not exit from
Python 3.13 on, and up to Python 3.12 it sometimes ends with a segmentation fault. debugpy alone behaves in the same way
(seen with debugpy 1.8.22, eventlet 0.41 and gevent 26.9). With `GEVENT_SUPPORT`, pydevd is prepared for gevent's patch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType

from relay_agent.debuggee import gevent_support
from relay_agent.gevent_originals import GEVENT_VARIABLE
from relay_agent.import_hook import after_import

__all__ = ["EVENTLET", "EVENTLET_HINT", "GEVENT_HINT", "install"]

EVENTLET = "debugpy does not work with eventlet"
EVENTLET_HINT = "leave out monkey_patch() in the debug run, or use gevent or asyncio, as eventlet's authors recommend"
GEVENT_HINT = f"set {GEVENT_VARIABLE}=True in the job's environment, or attach only after the patch"
_replaced: list[ModuleType] = []
"""The modules whose function was replaced."""


def install(*, before_patch: Callable[[str], None]) -> None:
    """Make the functions that patch threads call another function first; they are replaced when they are imported.

    Args:
        before_patch: Receives the reason and a hint.
    """
    reason = f"{EVENTLET}. hint: {EVENTLET_HINT}"
    after_import("eventlet.patcher", lambda module: _wrap(module, "monkey_patch", lambda: before_patch(reason)))
    after_import("gevent.monkey", lambda module: _wrap(module, "patch_thread", lambda: _before_gevent(before_patch)))


def _before_gevent(before_patch: Callable[[str], None]) -> None:
    if not gevent_support.in_use():
        before_patch(f"gevent patches the standard library under it. hint: {GEVENT_HINT}")


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

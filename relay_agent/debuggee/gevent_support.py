"""debugpy in a job that uses gevent: debugpy's own threads stay native, and the job's greenlets are traced.

If `GEVENT_SUPPORT` is set when pydevd is imported, pydevd supports gevent and uses copies of the standard library. But
pydevd traces greenlets only in the thread that starts it, which here is the thread that serves the node's agent, and it
traces no greenlets that were already running. This module also traces the greenlets of the main thread.

Before eventlet or gevent patches the threads under a debugger that is not prepared for it, the debugger is ended,
because the job would be harmed. The locks of debugpy's threads would become the library's. With eventlet, the job's
main thread then waits for those threads without limit, even at a line without a breakpoint. With gevent, the job
continues, but it does not exit from Python 3.13 on, and up to Python 3.12 it sometimes ends with a segmentation fault.
debugpy alone behaves in the same way (seen with debugpy 1.8.22, eventlet 0.41 and gevent 26.9). With `GEVENT_SUPPORT`,
pydevd is prepared for gevent's patch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from relay_agent.debugpy_internals.table import GEVENT, GEVENT_HINT
from relay_agent.job import gevent_originals
from relay_agent.job.gevent_originals import GEVENT_VARIABLE, socket, threading
from relay_agent.job.import_hook import after_import
from relay_agent.job.own_settrace import settrace
from relay_agent.stacks.in_process import with_callers

EVENTLET = "debugpy does not work with eventlet"
EVENTLET_WAY_OUT = (
    "leave out monkey_patch() in the debug run, or use gevent or asyncio, as eventlet's authors recommend"
)
GEVENT_WAY_OUT = f"set {GEVENT_VARIABLE}=True in the job's environment, or attach only after the patch"

_USED_BY_PYDEVD = ("code", "xmlrpc.client", "xmlrpc.server", "http.server")
"""Modules of the standard library that pydevd's list of saved modules imports; the job must not get the copies that
pydevd uses."""


def in_use() -> bool:
    """Return whether pydevd was imported with support for gevent, so that it traces greenlets itself."""
    return getattr(sys.modules.get("pydevd"), "pydevd_gevent_integration", None) is not None


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Make pydevd, if it is imported in this block, use native threads, and support gevent if the job uses it."""
    if "pydevd" in sys.modules or not gevent_originals.is_active():
        yield
        return
    for name in _USED_BY_PYDEVD:
        importlib.import_module(name)
    preimport: Any = importlib.import_module("debugpy._vendored").preimport

    with gevent_originals.copies_in_use("_thread", "threading", "time", "select", "socket", "queue"):
        preimport("pydevd", ["_pydev_bundle._pydev_saved_modules"])
    is_ours = GEVENT_VARIABLE not in os.environ
    os.environ.setdefault(GEVENT_VARIABLE, "True")
    try:
        with gevent_originals.subprocess_in_use():  # used by `platform`
            yield
    finally:
        if is_ours:
            del os.environ[GEVENT_VARIABLE]  # child processes need not use gevent


def install() -> None:
    """Prepare the newly imported pydevd for greenlets, if it supports gevent."""
    silence_hint()
    if not in_use() or not GEVENT.is_available():
        return
    with GEVENT.guarded():
        sys.modules["debugpy.common.sockets"].socket = socket  # type: ignore[attr-defined]
        helper: Any = threading.current_thread()
        if helper is not threading.main_thread():  # unknown to pydevd if started before gevent's patch
            helper.pydev_do_not_trace = helper.is_pydev_daemon_thread = True
        _install_tracer()
        _make_thread_daemon()


def trace_main_thread() -> None:
    """Trace the greenlets of the calling thread, which is the main thread."""
    pydevd: Any = sys.modules["pydevd"]

    with GEVENT.guarded():
        debugger = pydevd.get_global_debugger()
        debugger.enable_tracing()
        greenlet: Any = sys.modules["greenlet"]
        greenlet.settrace(pydevd.pydevd_gevent_integration.greenlet_events)  # pydevd does so only before Python 3.12
        debugger.set_trace_for_frame_and_parents(threading.get_ident(), sys._getframe())  # noqa: SLF001


class GreenletTracer:
    """Callback for switches between greenlets: traces running greenlets, as pydevd traces those that start later.

    Args:
        events: pydevd's callback; None where it uses `sys.monitoring`, which needs none.
    """

    is_released = False
    """True while tracing is off; greenlets are then cleared when they next run."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self._traced: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """The greenlets whose frames are traced, each with the version of pydevd's breakpoints (`mtime`) for which they
        were traced."""

    def __call__(self, event: str, switch: tuple[Any, Any]) -> None:
        """Trace the greenlet that is beginning to run; called in that greenlet."""
        if GEVENT.is_off or GreenletTracer.is_released:
            if self._traced.pop(switch[1], None) is not None:
                settrace(None)
                for each in with_callers(sys._getframe()):  # noqa: SLF001 - its documented name, and below
                    each.f_trace = None
            return
        if self._events is not None:
            self._events(event, switch)
        debugger = sys.modules["pydevd"].get_global_debugger()
        if debugger is not None and self._traced.get(switch[1]) != debugger.mtime:
            with GEVENT.guarded():
                self._traced[switch[1]] = debugger.mtime
                debugger.set_trace_for_frame_and_parents(threading.get_ident(), sys._getframe())  # noqa: SLF001
                if sys.version_info >= (3, 12) and self._events is None:
                    # Python makes lines report events again only in frames that a thread is running at that moment.
                    sys.monitoring.restart_events()


def _install_tracer() -> None:
    from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING  # noqa: PLC0415 - in debug runs only

    integration = sys.modules["pydevd"].pydevd_gevent_integration
    if not isinstance(integration.greenlet_events, GreenletTracer):
        integration.greenlet_events = GreenletTracer(None if PYDEVD_USE_SYS_MONITORING else integration.greenlet_events)


def _make_thread_daemon() -> None:
    """Let the job exit while pydevd's CheckAliveThread is running, the only one of its threads that is not a daemon.

    That thread ends when it sees that the main thread is done, which is never marked in a copy of `threading`. From
    Python 3.13 on, the job's module waits at the exit for the threads of its copies too.
    """
    pydevd: Any = sys.modules["pydevd"]
    thread = pydevd.CheckAliveThread

    def start_as_daemon(debugger: Any) -> Any:
        created = thread(debugger)
        created.daemon = True
        return created

    if isinstance(thread, type):
        pydevd.CheckAliveThread = start_as_daemon


def silence_hint() -> None:
    """Keep a pydevd without support for gevent from repeating its hint with each message: `watch_patches` gives one."""
    if in_use() or not GEVENT_HINT.is_available():
        return
    from _pydevd_bundle import pydevd_comm, pydevd_daemon_thread  # noqa: PLC0415 - in debug runs only

    with GEVENT_HINT.guarded():
        for module in (pydevd_comm, pydevd_daemon_thread):
            module.notify_about_gevent_if_needed = lambda _stream=None: False


@functools.cache
def watch_patches(*, before_patch: Callable[[str], None]) -> None:
    """Make the functions that patch threads, once these are imported, call another function first; only once for each.

    Args:
        before_patch: Receives the reason and a hint.
    """
    reason = f"{EVENTLET}. hint: {EVENTLET_WAY_OUT}"
    after_import("eventlet.patcher", lambda module: _wrap(module, "monkey_patch", lambda: before_patch(reason)))
    after_import("gevent.monkey", lambda module: _wrap(module, "patch_thread", lambda: _before_gevent(before_patch)))


def _before_gevent(before_patch: Callable[[str], None]) -> None:
    if not in_use():
        before_patch(f"gevent patches the standard library under it. hint: {GEVENT_WAY_OUT}")


def _wrap(module: ModuleType, name: str, before: Callable[[], None]) -> None:
    function = vars(module)[name]

    @functools.wraps(function)
    def end_and_patch(*arguments: object, **named: object) -> object:
        before()
        return function(*arguments, **named)

    package = sys.modules.get(module.__name__.partition(".")[0])
    for each in (module, package):
        if each is not None and vars(each).get(name) is function:
            setattr(each, name, end_and_patch)

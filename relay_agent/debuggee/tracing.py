"""How pydevd looks at each line that runs: taken off every thread, and put back.

pydevd has no such switch. It continues to trace after a debugger has left, and up to Python 3.11 traced code runs
several times slower. It is all undone here except what costs nothing, so that a later debugger finds everything in its
place: its socket, its threads and its patches of the standard library stay.

Python 3.10 and 3.11 let a thread clear its own trace function only. So each thread gets one that clears itself when
the thread next reaches a line or a call; a thread that is in C code, asleep for instance, does so when it comes back.
Later versions have `threading.settrace_all_threads`, and pydevd uses `sys.monitoring` there, which is switched off as
a whole.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from relay_core.errors import RelayDebugError

__all__ = ["reach_threads", "start_tracing", "stop_tracing"]

ROUNDS = 3
"""How often a trace function is replaced; what pydevd does in the thread at that moment may undo the first time."""
ROUND_TIME = 0.05
"""Seconds for all threads to answer, several times what they wait for each other's turn; one in C code cannot."""

_settrace = sys.settrace
"""Before pydevd has a chance to replace it."""
_kept: list[object] = []
"""C callbacks, which must outlive their call."""


def stop_tracing() -> None:
    """Give every thread, and those to come, full speed back.

    Raises:
        RelayDebugError: pydevd is not as this module knows it; nothing has been changed.
    """
    pydevd = _Pydevd.find()
    if pydevd.debugger is not None:
        with pydevd.debugger._main_lock:  # noqa: SLF001 - held while a debugger's goodbye is being worked on
            pass
    pydevd.monkey.disable_trace_thread_modules()
    if sys.version_info >= (3, 12) and pydevd.uses_monitoring:
        _stop_monitoring()
        return
    threading.settrace(None)
    if pydevd.stop_frame_eval is not None:
        pydevd.stop_frame_eval()
    if sys.version_info >= (3, 12):
        threading.settrace_all_threads(None)
    else:
        _Release(pydevd.tracing.set_trace_to_threads).run()


def start_tracing() -> None:
    """Let pydevd trace again: every thread, the code that runs in it now, and threads to come.

    Raises:
        RelayDebugError: pydevd is not as this module knows it.
    """
    pydevd = _Pydevd.find()
    debugger = pydevd.debugger
    pydevd.monkey.enable_trace_thread_modules()
    debugger.patch_threads()
    debugger.enable_tracing(debugger.trace_dispatch, apply_to_all_threads=True)
    debugger.set_tracing_for_untraced_contexts()
    reach_threads()


def reach_threads() -> None:
    """Have the threads traced that pydevd could not reach from this one.

    Without its C library, which there is for x86, it can trace this thread and those to come. On Python 3.10
    and 3.11 the main thread only is reached, when it next runs Python code.
    """
    try:
        pydevd = _Pydevd.find()
    except RelayDebugError:  # then it has done what it can
        return
    if pydevd.uses_monitoring or pydevd.tracing._load_python_helper_lib() is not None:  # noqa: SLF001 - None if there is none
        return
    if sys.version_info >= (3, 12):
        threading.settrace_all_threads(pydevd.debugger.trace_dispatch)
    elif threading.current_thread() is not threading.main_thread():
        _call_in_main_thread(pydevd.debugger.enable_tracing)


def _call_in_main_thread(call: Callable[[], object]) -> None:
    """Ask the interpreter to make a call in the main thread, between two of its instructions."""
    import ctypes  # noqa: PLC0415 - in debug runs only

    def pending(_argument: object) -> int:
        call()
        return 0

    callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
    _kept.append(callback)
    ctypes.pythonapi.Py_AddPendingCall(callback, None)


@dataclass(frozen=True)
class _Pydevd:
    """What is used of pydevd, found before anything is changed."""

    debugger: Any
    """None once its adapter has gone."""
    monkey: ModuleType
    tracing: ModuleType
    uses_monitoring: bool
    stop_frame_eval: Any

    @classmethod
    def find(cls) -> _Pydevd:
        try:
            import pydevd  # noqa: PLC0415 - in debug runs only, here and below
            import pydevd_tracing  # noqa: PLC0415
            from _pydev_bundle import pydev_monkey  # noqa: PLC0415
            from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING  # noqa: PLC0415
            from _pydevd_frame_eval.pydevd_frame_eval_main import stop_frame_eval  # noqa: PLC0415

            found = cls(
                debugger=pydevd.get_global_debugger(),
                monkey=pydev_monkey,
                tracing=pydevd_tracing,
                uses_monitoring=bool(PYDEVD_USE_SYS_MONITORING),
                stop_frame_eval=stop_frame_eval,
            )
            for owner, names in found._needed():
                for name in names:
                    getattr(owner, name)
        except (ImportError, AttributeError) as error:
            raise RelayDebugError(
                f"this debugpy cannot be switched off and on: {error}",
                hint="the job goes on as debugpy left it; use a debugpy that this version of relay-debug knows",
            ) from error
        return found

    def _needed(self) -> Iterable[tuple[Any, list[str]]]:
        if self.debugger is not None:
            yield self.debugger, ["enable_tracing", "patch_threads", "set_tracing_for_untraced_contexts"]
            yield self.debugger, ["trace_dispatch", "_main_lock"]
        yield self.monkey, ["disable_trace_thread_modules", "enable_trace_thread_modules"]
        yield self.tracing, ["set_trace_to_threads", "_load_python_helper_lib"]


if sys.version_info >= (3, 12):

    def _stop_monitoring() -> None:
        """Switch pydevd's events off, and let code that it has prepared for a breakpoint return to normal.

        Such code stays marked, line by line, and slow, unless the answer to the first event of each line is DISABLE.
        """
        monitoring = sys.monitoring
        if monitoring.get_tool(monitoring.DEBUGGER_ID) != "pydevd":
            return
        monitoring.set_events(monitoring.DEBUGGER_ID, 0)
        for event in (monitoring.events.LINE, monitoring.events.JUMP, monitoring.events.PY_RETURN):
            monitoring.register_callback(monitoring.DEBUGGER_ID, event, lambda *_event: monitoring.DISABLE)


class _Release:
    """Takes the trace functions off the threads of Python 3.10 and 3.11."""

    def __init__(self, set_trace_to_threads: Callable[..., int]) -> None:
        self._set_trace_to_threads = set_trace_to_threads
        self._answered: set[int] = set()

    def run(self) -> None:
        """Clear this thread, and have the others clear themselves, unless they seem to be in C code."""
        self._let_go(sys._getframe(), "call", None)  # noqa: SLF001 - its documented name
        for _ in range(ROUNDS):
            waiting = self._reach()
            deadline = time.monotonic() + ROUND_TIME
            while not waiting <= self._answered and time.monotonic() < deadline:
                time.sleep(ROUND_TIME / 20)

    def _reach(self) -> set[int]:
        """Put `_let_go` where the next event of each thread will find it, and return their numbers."""
        running = sys._current_frames()  # noqa: SLF001 - its documented name
        frames = {thread: frame for thread, frame in running.items() if thread not in self._done()}
        for frame in frames.values():  # for the frames that run; needs nothing of pydevd
            for each in _with_callers(frame):
                each.f_trace = self._let_go
        if frames:  # for what they call
            self._set_trace_to_threads(self._let_go, thread_idents=list(frames), create_dummy_thread=False)
        return set(frames)

    def _done(self) -> set[int]:
        threads = list(threading._active.values())  # type: ignore[attr-defined] # noqa: SLF001 - enumerate() hides some
        return self._answered | {thread.ident for thread in threads if hasattr(thread, "is_pydev_daemon_thread")}

    def _let_go(self, frame: FrameType, _event: str, _arg: object) -> None:
        """Clear the thread that runs this."""
        _settrace(None)
        for each in _with_callers(frame):
            each.f_trace = None
        self._answered.add(threading.get_ident())


def _with_callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back

"""Switches pydevd's tracing off and on again, in every thread.

pydevd has no such switch. It continues to trace after a debugger has detached, and up to Python 3.11, traced code runs
several times slower. This module undoes only what costs time; pydevd's socket, threads and patches of the standard
library stay in place for the next debugger.

In Python 3.10 and 3.11, a thread can only clear its own trace function. So each thread gets a trace function that
clears itself when the thread next reaches a line or a call. A thread in C code, for example in a sleep, does so when it
returns. Later versions have `threading.settrace_all_threads`, and there pydevd uses `sys.monitoring`, which is switched
off as a whole.

What it is worth, on Python 3.11: with a debugger attached, a loop takes 4.1 times as long and tiny calls 13 times;
after `stop_tracing`, as long as without a debugger. debugpy alone leaves a job at x4.1 and x13 as soon as the job has
called `debugpy.listen` (`make bench BENCH="--only footprint"`).

What was rejected:

  * To end debugpy and start it again: its adapter, sockets, threads and the patches of the standard library have no way
    back, and each attach would take as long as the first one, 0.3 s more.
  * To write to the structures of other threads by `ctypes`: their layout differs between versions of Python, and an
    error there crashes the job.
  * To call `sys.settrace(None)` only: it affects the calling thread, and frames keep their own trace functions, which
    become active again as soon as the thread is traced.

Invariants: pydevd's names are all looked up before the first change, so a version that differs leaves the process
traced as before, and never half. Threads are changed before their frames. Whatever is switched off here is switched on
again by `_start_tracing`, in the same module, so that a reader can compare the two.

What is ugly: `_TraceRemover.is_over` belongs to the process and not to one removal. A thread can stay in C code for
hours and run `_clear_thread` long after the next debugger has attached; the function must then find out that it may
remove only itself. It also means that a job in a long C call is released only when that call returns, which nothing in
Python can change.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from relay_agent.debuggee import gevent_support
from relay_agent.debugpy_internals.table import INTERRUPTED, REACHING, RELEASE, UNCAUGHT
from relay_agent.job.gevent_originals import threading, time
from relay_agent.job.helper_thread import start_helper
from relay_agent.job.main_thread import add_pending_call
from relay_agent.job.own_settrace import settrace, tracer_name
from relay_agent.job.stderr import write_line
from relay_agent.stacks.in_process import with_callers
from relay_core.errors import RelayDebugError

ROUNDS = 3
"""Number of times that the trace functions are replaced, because pydevd code that is running in a thread may undo the
first replacement."""
ROUND_TIME = 0.05
"""Seconds per round for all threads to clear their trace functions: several GIL switch intervals. A thread in C code
cannot do so in time."""

RETRACE_ATTEMPTS = 100
RETRACE_LIMIT = 60.0
"""Seconds after which an attempt is repeated."""
RETRACE_INTERVAL = 0.01
"""Seconds between attempts; an exception leaves a trace function within a few milliseconds."""

_unreached: list[threading.Thread] = []
"""Running threads that could not be traced."""


def stop_tracing() -> bool:
    """Stop tracing in every thread, and in threads that start later; return whether that was possible.

    If it was not possible, this process remains traced, as it would with debugpy alone.
    """
    if not RELEASE.is_available():
        return False
    with RELEASE.guarded():
        _stop_tracing()
        return True
    with contextlib.suppress(Exception):  # some threads may already be cleared
        _start_tracing()
    return False


def _stop_tracing() -> None:
    import pydevd  # noqa: PLC0415 - in debug runs only, as below
    import pydevd_tracing  # noqa: PLC0415
    from _pydev_bundle import pydev_monkey  # noqa: PLC0415
    from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING  # noqa: PLC0415
    from _pydevd_frame_eval.pydevd_frame_eval_main import stop_frame_eval  # noqa: PLC0415

    debugger = pydevd.get_global_debugger()
    if debugger is not None:  # otherwise, its adapter has exited
        debugger.trace_dispatch  # noqa: B018 - for `_start_tracing`; only instances have it
        with debugger._main_lock:  # noqa: SLF001 - held while pydevd processes a disconnect
            pass
    restore_output()
    pydev_monkey.disable_trace_thread_modules()
    if PYDEVD_USE_SYS_MONITORING:
        _stop_monitoring()
        return
    gevent_support.GreenletTracer.is_released = True
    threading.settrace(None)
    if stop_frame_eval is not None:
        stop_frame_eval()
    if sys.version_info >= (3, 12):
        threading.settrace_all_threads(None)
    else:
        _TraceRemover(pydevd_tracing.set_trace_to_threads).run()


def log_replaced_tracer() -> None:
    """Log which tool loses the trace functions of all threads to a debugger that is about to start.

    They are not put back when the debugger detaches: only the thread itself can read its trace function.
    """
    if sys.version_info < (3, 12) and (name := tracer_name(threading.gettrace())):
        write_line(
            f"the debugger replaces {name} in all threads until the job ends, because up to Python 3.11 a thread has "
            "only one trace function"
        )


def restore_output() -> None:
    """Undo pydevd's redirection of stdout and stderr, which makes each output several times slower.

    A stream with which the job has replaced the redirected one stays. The job may also have stored the redirected one,
    for example in a handler of `logging`: from now on, it passes everything on to the job's own stream only.
    """
    io: Any = sys.modules["_pydevd_bundle.pydevd_io"]
    for std in ("stdout", "stderr"):
        redirection = getattr(io._RedirectionsHolder, f"_pydevd_{std}_redirect_")  # noqa: SLF001 - in the table
        if redirection is not None:
            io.stop_redirect_stream_to_pydb_io_messages(std)
            stream = redirection.redirect_to
            for each in (stream, vars(stream).get("buffer")):
                if each is not None:
                    each._redirect_to = each._redirect_to[:1]  # noqa: SLF001 - in the table


def start_tracing() -> None:
    """Resume tracing in every thread, including functions that are already running, and in threads that start later.

    Raises:
        RelayDebugError: pydevd's internals are not as expected, although they were when tracing was switched off.
    """
    try:
        _start_tracing()
    except Exception as error:
        RELEASE.switch_off(error)
        raise RelayDebugError(f"tracing cannot be switched on again: {error}", hint="run the job again") from error
    reach_threads()


def _start_tracing() -> None:
    import pydevd  # noqa: PLC0415 - in debug runs only, as below
    from _pydev_bundle import pydev_monkey  # noqa: PLC0415

    debugger = pydevd.get_global_debugger()
    _TraceRemover.is_over = True
    gevent_support.GreenletTracer.is_released = False
    pydev_monkey.enable_trace_thread_modules()
    debugger.patch_threads()
    debugger.enable_tracing(debugger.trace_dispatch, apply_to_all_threads=True)
    debugger.set_tracing_for_untraced_contexts()


def reach_threads() -> None:
    """Trace the threads that pydevd cannot reach from the calling one.

    Without its C library, which exists only for x86, pydevd traces only the calling thread and threads that start
    later. In Python 3.10 and 3.11, this function adds only the main thread, when that thread next runs Python code.
    """
    if REACHING.is_available():
        with REACHING.guarded():
            _reach_threads()


def _reach_threads() -> None:
    import pydevd_tracing  # noqa: PLC0415 - in debug runs only, as below
    from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING, get_global_debugger  # noqa: PLC0415

    if gevent_support.in_use() and threading.current_thread() is not threading.main_thread():
        add_pending_call(gevent_support.trace_main_thread)
    if PYDEVD_USE_SYS_MONITORING or pydevd_tracing._load_python_helper_lib() is not None:  # noqa: SLF001 - None if missing
        return
    debugger = get_global_debugger()
    if sys.version_info >= (3, 12):
        threading.settrace_all_threads(debugger.trace_dispatch)
    else:
        if threading.current_thread() is not threading.main_thread():
            add_pending_call(debugger.enable_tracing)
        reached = (threading.main_thread(), threading.current_thread())
        others = (thread for thread in threading.enumerate() if not hasattr(thread, "is_pydev_daemon_thread"))
        _unreached[:] = [thread for thread in others if thread not in reached]


def unreached_threads() -> str:
    """Return a line about the running threads that `reach_threads` could not reach; "" if there are none."""
    names = [thread.name for thread in _unreached if thread.is_alive()]
    if not names:
        return ""
    return (
        f"breakpoints are not hit in threads that started before the debugger attached: {', '.join(names)}. hint: "
        "attach while the job waits (--debug-wait), or use Python 3.12 or later"
    )


def trace_program() -> None:
    """Make pydevd report the uncaught exceptions of a program; call this just before this thread starts the program.

    Up to Python 3.11, pydevd reports an exception as uncaught when it leaves the outermost frame of a thread. It looks
    for that frame once per thread, at the first traced call (`fix_top_level_trace_and_get_trace_func`). In a thread
    that waits for its debugger in a startup hook, it finds a frame that exits before the program begins.
    """
    if "pydevd" not in sys.modules or not UNCAUGHT.is_available():
        return
    from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING, get_global_debugger  # noqa: PLC0415 - as above

    with UNCAUGHT.guarded():
        debugger = get_global_debugger()
        if debugger is not None and not PYDEVD_USE_SYS_MONITORING and sys.gettrace() is not None:
            settrace(functools.partial(_trace_from_program, debugger.trace_dispatch))


def _trace_from_program(dispatch: Any, frame: FrameType, event: str, arg: object) -> Any:
    """Trace function that is replaced by `dispatch` when the program begins.

    Before that, Python runs its import code.
    """
    if frame.f_back is not None or frame.f_globals.get("__name__") != "__main__":
        return None
    settrace(dispatch)
    return dispatch(frame, event, arg)


def retrace_main_thread() -> None:
    """Trace the main thread again if an exception that is leaving its trace function makes Python remove the function.

    Has no effect in other threads, and with `sys.monitoring`, which keeps its callbacks in this case.
    """
    from _pydevd_bundle.pydevd_constants import PYDEVD_USE_SYS_MONITORING  # noqa: PLC0415 - in debug runs only

    if not PYDEVD_USE_SYS_MONITORING and threading.get_ident() == threading.main_thread().ident:
        start_helper(_Retracer().run, "relay-agent tracing")


class _Retracer:
    """Waits until the main thread has lost its trace function, and sets the function again."""

    _is_over = False

    def run(self) -> None:
        """Try again as long as the trace function is running."""
        for _ in range(RETRACE_ATTEMPTS):
            attempted = threading.Event()
            add_pending_call(lambda attempted=attempted: self._attempt(attempted))  # type: ignore[misc]
            attempted.wait(RETRACE_LIMIT)  # the main thread may be in C code, or in another handler that raises
            if self._is_over:
                return
            time.sleep(RETRACE_INTERVAL)

    def _attempt(self, attempted: threading.Event) -> None:
        """Trace this thread if it has no trace function, unless tracing was switched off."""
        pydevd: Any = sys.modules["pydevd"]

        with INTERRUPTED.guarded():
            debugger = pydevd.get_global_debugger()
            self._is_over = sys.gettrace() is None or debugger is None
            if self._is_over and debugger is not None and threading.gettrace() is not None:
                debugger.enable_tracing()
                debugger.set_trace_for_frame_and_parents(threading.get_ident(), sys._getframe())  # noqa: SLF001
        attempted.set()


def _stop_monitoring() -> None:
    """Switch pydevd's events off, and remove its line events from code with breakpoints.

    Such code remains instrumented, and slow, until the callback of each line's first event has returned DISABLE.
    """
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined] # Python 3.12
    if monitoring.get_tool(monitoring.DEBUGGER_ID) != "pydevd":
        return
    monitoring.set_events(monitoring.DEBUGGER_ID, 0)
    for event in (monitoring.events.LINE, monitoring.events.JUMP, monitoring.events.PY_RETURN):
        monitoring.register_callback(monitoring.DEBUGGER_ID, event, lambda *_event: monitoring.DISABLE)


class _TraceRemover:
    """Removes the trace functions of all threads in Python 3.10 and 3.11."""

    is_over = False
    """True once tracing is on again. A thread that has not cleared its trace function by then keeps it."""

    def __init__(self, set_trace_to_threads: Callable[..., int]) -> None:
        self._set_trace_to_threads = set_trace_to_threads
        self._cleared: set[int] = set()

    def run(self) -> None:
        """Clear this thread, and make the others clear themselves; threads that appear to be in C code do so later."""
        _TraceRemover.is_over = False
        self._clear_thread(sys._getframe(), "call", None)  # noqa: SLF001 - its documented name
        for _ in range(ROUNDS):
            pending = self._replace_trace_functions()
            deadline = time.monotonic() + ROUND_TIME
            while not pending <= self._cleared and time.monotonic() < deadline:
                time.sleep(ROUND_TIME / 20)
        self._forget_cleared_frames()

    def _replace_trace_functions(self) -> set[int]:
        """Make `_clear_thread` the trace function of each thread that still has one, and return their idents."""
        running = sys._current_frames()  # noqa: SLF001 - its documented name
        frames = {thread: frame for thread, frame in running.items() if thread not in self._done()}
        # The threads first: if a frame cleared its thread before the thread's trace function is set, a loop that calls
        # nothing would be traced until it ends, because only its frame could clear the thread once more.
        if frames:
            self._set_trace_to_threads(self._clear_thread, thread_idents=list(frames), create_dummy_thread=False)
        for frame in frames.values():
            for each in with_callers(frame):
                each.f_trace = self._clear_thread
        return set(frames)

    def _forget_cleared_frames(self) -> None:
        """Clear the frames that received a trace function just after a call had cleared their thread."""
        for thread, frame in sys._current_frames().items():  # noqa: SLF001 - its documented name
            for each in with_callers(frame) if thread in self._cleared else ():
                if each.f_trace == self._clear_thread:
                    each.f_trace = None

    def _done(self) -> set[int]:
        """Return the idents of the cleared threads and of pydevd's own, which are not traced."""
        threads = list(threading._active.values())  # type: ignore[attr-defined] # noqa: SLF001 - enumerate() hides some
        return self._cleared | {thread.ident for thread in threads if hasattr(thread, "is_pydev_daemon_thread")}

    def _clear_thread(self, frame: FrameType, _event: str, _arg: object) -> None:
        """Trace function that removes itself, and pydevd's unless tracing is on again, from the thread that runs it."""
        if not _TraceRemover.is_over:
            settrace(None)
        for each in with_callers(frame):
            if each.f_trace == self._clear_thread or not _TraceRemover.is_over:
                each.f_trace = None
        self._cleared.add(threading.get_ident())

"""Hooks at lines by changed code objects, in Python 3.10 and 3.11.

A call of the hook is inserted into the code of each function that has the line, and the code is put back at the end.
All other code keeps its speed. Line numbers, names and closures stay the same, so tracebacks and breakpoints do, too.

A frame that is already being executed keeps its code. A typical training loop is one, and is never called again. In
the main thread, such frames get a trace function. This makes all Python code of that thread slower until the last of
them returns, so it is done only if no debugger or other tool has a trace function there. Frames that share variables
with inner functions get none: up to Python 3.12, a trace function in Python sets such variables to their values before
its call (https://github.com/python/cpython/issues/74929), and another thread may have changed them meanwhile.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Any

from relay_agent.job.gevent_originals import is_active, threading
from relay_agent.job.main_thread import change_main_trace
from relay_agent.job.own_settrace import IGNORE, settrace, tracer_name
from relay_agent.job.torch_compiler import allow_constants, has_compiled_code
from relay_agent.push.loaded_code import (
    WatchedCode,
    all_functions,
    callables,
    original_of,
    suspended_frames,
    watched_codes,
    with_inner,
)
from relay_agent.stacks.in_process import all_frames, with_callers
from relay_agent.stacks.local_names import local_names
from relay_agent.trigger.bytecode import with_calls
from relay_agent.trigger.places import Hook

TRACE_TIME = 0.5
"""Seconds to wait until the main thread has its trace function; it may be in C code for longer."""
STOP_ATTEMPTS = 3
LATER = "calls that are already running are watched as soon as the main thread executes Python code again"
"""The note if the main thread has not got its trace function in this time."""
SLOWER = "until the running calls return, all Python code of the main thread is slower; Python 3.12 has no such cost"
"""The note if the main thread is traced."""
NOT_WATCHED = "calls that are already running are not watched{}; use Python 3.12 or a logpoint"
"""The note if running calls have no hook."""
TRACED = ", because {} has a trace function in the main thread"
COMPILED = (
    "torch.compile has compiled code in this job: up to Python 3.11, only calls that are already running are watched"
)
"""The note if code is not changed: torch.compile would compile it again, or fail if it must not split the graph."""


class _Call:
    """What changed code calls."""

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook
        """None once the hook was removed."""

    def __call__(self, frame: FrameType | None = None) -> None:
        hook = self.hook
        if hook is None:
            return
        try:
            if number := hook.reached():
                hook.report(frame or sys._getframe(1), number)  # noqa: SLF001 - its documented name
        except RecursionError:  # the job is just below the limit
            pass

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        """Do nothing in another process to which the job sends the function, and which may not have this package."""
        return functools.partial, (dict,)


class Engine:
    """The hooks of this process."""

    def __init__(self) -> None:
        self._calls: dict[int, list[_Call]] = {}
        """By the id of the code object that the job has loaded."""
        self._trace: Any = self._traced
        """The trace function of the frames, always the same object."""
        self._tracing: object = None
        """Identifies the last request to the main thread; None if it is to have no trace function."""
        self._is_tracing = False
        """Whether the main thread has got a trace function, or is getting one."""
        self._traced_codes: Sequence[CodeType] = ()
        """The code of the frames that have got one."""
        self._has_suspended = False
        """Whether a suspended generator has a trace function: it does not return through its caller."""

    def set_hooks(self, hooks: Sequence[Hook]) -> str:
        """Replace all hooks, and return what the user should know, in one sentence; "" if nothing."""
        allow_constants(_Call)
        known: dict[int, Any] = {id(call.hook): call for found in self._calls.values() for call in found}
        self._calls = {}
        for hook in hooks:
            self._calls.setdefault(id(hook.place.code), []).append(known.pop(id(hook), None) or _Call(hook))
        for call in known.values():  # a running frame still has it
            call.hook = None
        is_compiled, by_numba = has_compiled_code(), _compiled_by_numba()
        files = {hook.place.code.co_filename for hook in hooks}
        for function in all_functions().values():
            code = function.__code__
            if id(code) in watched_codes or code.co_filename in files:
                is_left = is_compiled or id(function) in by_numba
                wanted = original_of(code) if is_left else self._with_calls(original_of(code))
                if wanted is not code:
                    function.__code__ = wanted
        if not hooks:
            self._stop_tracing()
            return ""
        return "; ".join([*self._trace_running(), *[COMPILED] * is_compiled])

    def disarm(self) -> None:
        """Make all hooks do nothing; for a forked child, whose memory a search for functions would copy."""
        for call in (call for found in self._calls.values() for call in found):
            call.hook = None
        self._calls, self._tracing, self._is_tracing = {}, None, False
        if sys.gettrace() is IGNORE:
            settrace(None)

    def _with_calls(self, code: CodeType) -> CodeType:
        """Return a code object with the calls of all hooks, also in the code inside it; itself if there are none."""
        wanted = frozenset(id(call) for each in with_inner(code) for call in self._calls.get(id(each), ()))
        if not wanted:
            return code
        for watched in watched_codes.values():
            if watched.original is code and watched.calls == wanted:
                return watched.code
        constants = tuple(self._with_calls(each) if isinstance(each, CodeType) else each for each in code.co_consts)
        calls: dict[int, list[_Call]] = {}
        for call in self._calls.get(id(code), ()):
            for offset in call.hook.place.starts if call.hook else ():
                calls.setdefault(offset, []).append(call)
        new = with_calls(code.replace(co_consts=constants), calls)
        watched_codes[id(new)] = WatchedCode(new, code, wanted)
        return new

    # Frames that are already being executed:

    def _trace_running(self) -> list[str]:
        """Have the main thread trace the frames that have no calls; return what the user should know."""
        main = threading.main_thread().ident
        running = [(ident, frame) for ident, frame in all_frames() if self._missing(frame.f_code)]
        codes = [call.hook.place.code for found in self._calls.values() for call in found if call.hook]
        in_main, suspended = [frame for ident, frame in running if ident == main], self._hooked(suspended_frames(codes))
        traceable = [*map(_can_be_traced, [*in_main, *suspended])]
        missed = [" in other threads or greenlets"] * (is_active() or len(in_main) < len(running))
        missed += [] if all(traceable) else [" in functions that share variables with inner ones"]
        notes = [NOT_WATCHED.format(" and".join(missed))] * bool(missed)
        if not any(traceable):
            return notes
        mine = self._tracing = object()
        tracers: list[Any] = []
        done = threading.Lock()
        done.acquire()

        def change(trace: Any) -> Any:
            tracers.append(None if trace is IGNORE else trace)
            if tracers[0] is None:
                self._is_tracing = True  # before the next line: the watch may be ending at this moment
                if self._tracing is not mine:
                    return trace
                hooked = self._hooked(with_callers(sys._getframe()))  # noqa: SLF001 - its documented name
                for frame in filter(_can_be_traced, [*hooked, *suspended]):
                    frame.f_trace = self._trace
                self._traced_codes = codes
            done.release()
            return IGNORE if tracers[0] is None else trace

        self._has_suspended = any(map(_can_be_traced, suspended))
        if not change_main_trace(change):
            return [NOT_WATCHED.format("")]
        if not done.acquire(timeout=TRACE_TIME):
            return [LATER, *notes]
        if tracers[0] is not None:
            return [NOT_WATCHED.format(TRACED.format(tracer_name(tracers[0]) or "a debugger"))]
        return [SLOWER, *notes]

    def _hooked(self, frames: Iterable[FrameType]) -> list[FrameType]:
        """Return the frames whose code has hooks, but not all of the calls."""
        return [frame for frame in frames if self._missing(frame.f_code)]

    def _missing(self, code: CodeType) -> list[_Call]:
        """Return the calls that a code object should have and does not have."""
        has = watched_codes[id(code)].calls if id(code) in watched_codes else ()
        return [call for call in self._calls.get(id(original_of(code)), []) if id(call) not in has]

    def _traced(self, frame: FrameType, event: str, _argument: object) -> None:
        """Trace function of a frame, which keeps it."""
        if event == "line":
            for call in self._missing(frame.f_code):
                place = call.hook.place if call.hook else None
                if place is not None and frame.f_lineno == place.line and frame.f_lasti not in place.ignored:
                    call(frame)
        elif event == "return" and not (self._has_suspended or self._is_in(frame.f_back)):
            settrace(None if (trace := sys.gettrace()) is IGNORE else trace)  # a tool may have been started meanwhile

    def _is_in(self, frame: FrameType | None) -> bool:
        return any(each.f_trace is self._trace for each in with_callers(frame))

    def _stop_tracing(self) -> None:
        self._tracing = None  # a request that the main thread has not executed yet
        if self._is_tracing:
            suspended = suspended_frames(self._traced_codes)
            self._is_tracing = not any(self._forget_frames(suspended) for _ in range(STOP_ATTEMPTS))

    def _forget_frames(self, suspended: Sequence[FrameType]) -> bool:
        """Have the main thread remove the trace function, and the values that frames have kept; return whether it has.

        Values are removed only while no trace function is being executed for a frame: at its end, Python would delete
        the variables whose values are missing.
        """
        ids = {*map(id, self._traced_codes)}
        is_done: list[bool] = []
        executed = threading.Lock()
        executed.acquire()

        def change(trace: Any) -> Any:
            stack = [*with_callers(sys._getframe())]  # noqa: SLF001 - its documented name
            is_tracing = any(frame.f_code is self._traced.__code__ for frame in stack)
            is_alone = (trace is None or trace is IGNORE) and not is_tracing and sys.getprofile() is None
            for frame in (*stack, *suspended):
                if frame.f_trace is self._trace:
                    frame.f_trace = None
                if is_alone and id(original_of(frame.f_code)) in ids:
                    local_names(frame)
            is_done.append(is_alone)
            executed.release()
            return None if trace is IGNORE else trace

        return change_main_trace(change) and executed.acquire(timeout=TRACE_TIME) and is_done[0]


def _can_be_traced(frame: FrameType) -> bool:
    return not (frame.f_code.co_cellvars or frame.f_code.co_freevars)


def _compiled_by_numba() -> set[int]:
    """Return the ids of the functions that numba compiles at their next call with other types; it refuses the calls."""
    if "numba" not in sys.modules:
        return set()
    modules = ((each, getattr(type(each), "__module__", None)) for each in callables())
    dispatchers = (each for each, module in modules if isinstance(module, str) and module.startswith("numba."))
    return {id(getattr(each, "py_func", None)) for each in dispatchers}

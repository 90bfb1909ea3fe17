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
import gc
import sys
from _thread import get_ident
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from relay_agent.job.gevent_originals import is_active, threading
from relay_agent.job.main_thread import change_main_trace
from relay_agent.job.own_settrace import settrace
from relay_agent.job.torch_compiler import has_compiled_code
from relay_agent.push.loaded_code import all_functions, suspended_frame
from relay_agent.stacks.in_process import with_callers
from relay_agent.trigger.bytecode import with_calls
from relay_agent.trigger.expression import local_names
from relay_agent.trigger.places import Hook, with_inner

TRACE_TIME = 0.5
"""Seconds to wait until the main thread has its trace function; it may be in C code for longer."""
SLOWER = "until the running calls return, all Python code of the main thread is slower; Python 3.12 has no such cost"
"""The note if the main thread is traced."""
NOT_WATCHED = "calls that are already running are not watched{}; use Python 3.12 or a log point"
"""The note if running calls have no hook."""
COMPILED = (
    "torch.compile has compiled code in this job: up to Python 3.11, only calls that are already running are watched"
)
"""The note if code is not changed: torch.compile would compile it again, or fail if it must not split the graph."""

_ignore: Any = memoryview(b"").__exit__
"""The trace function for calls: C code that returns None, which costs the least."""
_entered: set[int] = set()
"""The threads that are in a hook: an expression may reach a line with a hook."""


class _Call:
    """What changed code calls."""

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook
        """None once the hook was removed."""

    def __call__(self, frame: FrameType | None = None) -> None:
        hook = self.hook
        if hook is None or not (number := hook.reached()) or (thread := get_ident()) in _entered:
            return
        try:
            _entered.add(thread)
            hook.report(frame or sys._getframe(1), number)  # noqa: SLF001 - its documented name
        finally:
            _entered.discard(thread)

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        """Do nothing in another process to which the job sends the function, and which may not have this package."""
        return functools.partial, (dict,)


class _Changed(NamedTuple):
    """A code object with calls."""

    code: CodeType
    original: CodeType
    calls: frozenset[int]
    """The ids of the calls that were inserted, also into the code inside it."""


class Engine:
    """The hooks of this process."""

    def __init__(self) -> None:
        self._calls: dict[int, list[_Call]] = {}
        """By the id of the code object that the job has loaded."""
        self._changed: dict[int, _Changed] = {}
        """By the id of the changed code object; kept, because a frame or a new closure may have an old one."""
        self._is_tracing = False
        """Whether the main thread has got a trace function."""
        self._has_suspended = False
        """Whether a suspended generator has a trace function: it does not return through its caller."""

    def original(self, code: CodeType) -> CodeType:
        """Return the code object that the job has loaded."""
        return self._changed[id(code)].original if id(code) in self._changed else code

    def set_hooks(self, hooks: Sequence[Hook]) -> str:
        """Replace all hooks, and return what the user should know, in one sentence; "" if nothing."""
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
            if id(code) in self._changed or code.co_filename in files:
                is_left = is_compiled or id(function) in by_numba
                wanted = self.original(code) if is_left else self._with_calls(self.original(code))
                if wanted is not code:
                    function.__code__ = wanted
        if not hooks:
            self._stop_tracing()
            return ""
        note = self._trace_running()
        return COMPILED if is_compiled else note

    def disarm(self) -> None:
        """Make all hooks do nothing; for a forked child, whose memory a search for functions would copy."""
        for call in (call for found in self._calls.values() for call in found):
            call.hook = None
        self._calls, self._is_tracing = {}, False
        if sys.gettrace() is _ignore:
            settrace(None)

    def _with_calls(self, code: CodeType) -> CodeType:
        """Return a code object with the calls of all hooks, also in the code inside it; itself if there are none."""
        wanted = frozenset(id(call) for each in with_inner(code) for call in self._calls.get(id(each), ()))
        if not wanted:
            return code
        for changed in self._changed.values():
            if changed.original is code and changed.calls == wanted:
                return changed.code
        constants = tuple(self._with_calls(each) if isinstance(each, CodeType) else each for each in code.co_consts)
        calls: dict[int, list[_Call]] = {}
        for call in self._calls.get(id(code), ()):
            for offset in call.hook.place.starts if call.hook else ():
                calls.setdefault(offset, []).append(call)
        new = with_calls(code.replace(co_consts=constants), calls)
        self._changed[id(new)] = _Changed(new, code, wanted)
        return new

    # Frames that are already being executed:

    def _trace_running(self) -> str:
        main = threading.main_thread().ident
        running = {ident: self._hooked(with_callers(top)) for ident, top in sys._current_frames().items()}  # noqa: SLF001
        suspended = self._hooked(filter(None, map(suspended_frame, gc.get_objects())))
        in_main = running.pop(main, []) if main is not None else []
        elsewhere = NOT_WATCHED.format(" in other threads or greenlets") if any(running.values()) or is_active() else ""
        if not all(map(_can_be_traced, (*in_main, *suspended))):
            elsewhere = NOT_WATCHED.format(" in functions that share variables with inner ones")
        suspended = [*filter(_can_be_traced, suspended)]
        if not any(map(_can_be_traced, in_main)) and not suspended:
            return elsewhere
        is_traced: list[bool] = []
        done = threading.Lock()
        done.acquire()

        def change(trace: Any) -> Any:
            self._is_tracing = trace is None or trace is _ignore
            is_traced.append(self._is_tracing)
            if is_traced[0]:
                hooked = self._hooked(with_callers(sys._getframe()))  # noqa: SLF001
                for frame in [*filter(_can_be_traced, hooked), *suspended]:
                    frame.f_trace = self._trace
            done.release()
            return _ignore if is_traced[0] else trace

        self._has_suspended = bool(suspended)
        change_main_trace(change)
        done.acquire(timeout=TRACE_TIME)
        return (elsewhere or SLOWER) if is_traced != [False] else NOT_WATCHED.format("")

    def _hooked(self, frames: Iterable[FrameType]) -> list[FrameType]:
        """Return the frames whose code has hooks, but not all of the calls."""
        return [frame for frame in frames if self._missing(frame.f_code)]

    def _missing(self, code: CodeType) -> list[_Call]:
        """Return the calls that a code object should have and does not have."""
        changed = self._changed.get(id(code))
        found = self._calls.get(id(changed.original if changed else code), [])
        return [call for call in found if changed is None or id(call) not in changed.calls]

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        """Trace function of a frame."""
        if event == "line":
            for call in self._missing(frame.f_code):
                place = call.hook.place if call.hook else None
                if place is not None and frame.f_lineno == place.line and frame.f_lasti not in place.ignored:
                    call(frame)
        elif event == "return" and not (self._has_suspended or self._is_in(frame.f_back)):
            settrace(None if (trace := sys.gettrace()) is _ignore else trace)  # a tool may have been started meanwhile
        return self._trace

    def _is_in(self, frame: FrameType | None) -> bool:
        return any(each.f_trace == self._trace for each in with_callers(frame))

    def _stop_tracing(self) -> None:
        if not self._is_tracing:
            return
        self._is_tracing = False
        change_main_trace(lambda trace: None if trace is _ignore else trace)
        running = (frame for top in sys._current_frames().values() for frame in with_callers(top))  # noqa: SLF001
        for frame in (*running, *filter(None, map(suspended_frame, gc.get_objects()))):
            if frame.f_trace == self._trace:
                frame.f_trace = None
                local_names(frame)  # which the frame does not keep any more


def _can_be_traced(frame: FrameType) -> bool:
    return not (frame.f_code.co_cellvars or frame.f_code.co_freevars)


def _compiled_by_numba() -> set[int]:
    """Return the ids of the functions that numba compiles at their next call with other types; it refuses the calls."""
    if "numba" not in sys.modules:
        return set()
    modules = ((each, getattr(type(each), "__module__", None)) for each in gc.get_objects())
    dispatchers = (each for each, module in modules if isinstance(module, str) and module.startswith("numba."))
    return {id(getattr(each, "py_func", None)) for each in dispatchers}

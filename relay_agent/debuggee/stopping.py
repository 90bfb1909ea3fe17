"""Stops this thread in the attached debugger, as a breakpoint would.

torch.compile executes generated code in place of a function. Where it cannot compile a call, such as the one of
`breakpoint()`, the generated code makes the call, and other generated code does the rest of the function. No further
line of the function is executed in the frame of the call, so the debugger stops at the call itself. The functions that
stop must not be compiled as part of their caller.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from relay_agent.debugpy_internals.table import BREAK_HERE, COMPILED_CALLER, REASONS
from relay_agent.job import gevent_originals
from relay_agent.job.import_hook import after_import
from relay_agent.job.torch_compiler import is_generated

COMPILER = "torch._dynamo.eval_frame"


def stop_in(frame: FrameType, *, is_before_line: bool = False, is_returning: bool = False) -> None:
    """Stop in a frame: at its next line or, if torch.compile has generated its code, at its current line.

    Args:
        frame: The frame.
        is_before_line: Whether the current line has not been executed, so the debugger stops there.
        is_returning: Whether the function has executed its last line, so the debugger stops there, and steps to the
            caller.

    `debugpy.breakpoint()` stops in its caller, which here would be a function of this library.
    """
    import pydevd  # noqa: PLC0415 - an attached debugger has imported it, as below

    if (is_before_line or is_returning or is_generated(frame.f_code)) and not COMPILED_CALLER.is_off:
        with COMPILED_CALLER.guarded():  # without `is_available`, which calls functions in which pydevd could stop
            _stop_at_current_line(pydevd.get_global_debugger(), frame, is_returning=is_returning)
            return
    if BREAK_HERE.is_available():
        with BREAK_HERE.guarded():
            pydevd.settrace(
                suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame
            )
            return
    import debugpy  # noqa: PLC0415

    debugpy.breakpoint()


class untraced:  # noqa: N801 - used as a function; `contextlib.contextmanager` has code in which pydevd could stop
    """A context manager that keeps pydevd from stopping this thread in its block other than on request.

    Args:
        pydevd: pydevd's debugger.
        thread: This thread.
    """

    def __init__(self, pydevd: Any, thread: Any) -> None:
        self._pydevd = pydevd
        self._state = pydevd.set_additional_thread_info(thread)

    def __enter__(self) -> Any:
        self._pydevd.enable_tracing()  # makes pydevd register this thread now rather than later
        self._pydevd.disable_tracing()  # in this thread; else it could stop here, or in code that the user evaluates
        self._state.is_tracing += 1
        return self._state

    def __exit__(self, *_error: object) -> None:
        self._state.is_tracing -= 1
        self._pydevd.enable_tracing()


def _stop_at_current_line(pydevd: Any, frame: FrameType, *, is_returning: bool) -> None:
    from _pydevd_bundle import pydevd_comm_constants as commands  # noqa: PLC0415 - in debug runs only

    thread = gevent_originals.threading.current_thread()  # as in pydevd
    with untraced(pydevd, thread) as state:
        pydevd.set_suspend(thread, commands.CMD_SET_BREAK)
        pydevd.do_wait_suspend(thread, frame, "line", None)
        if is_returning and frame.f_back is not None:
            _step_to_caller(state, frame, commands)
            pydevd.set_trace_for_frame_and_parents(thread.ident, frame.f_back)


def ends_step(frame: FrameType) -> bool:
    """Return whether pydevd will stop at the current line of a frame, because a step over a line ends there."""
    info = getattr(gevent_originals.threading.current_thread(), "additional_info", None)
    over = {getattr(sys.modules.get(REASONS), name, None) for name in ("CMD_STEP_OVER", "CMD_STEP_OVER_MY_CODE")}
    is_over = getattr(info, "pydev_step_stop", None) is frame and getattr(info, "pydev_step_cmd", -1) in over
    return is_over and sys.version_info >= (3, 12)


def _step_to_caller(state: Any, frame: FrameType, commands: Any) -> None:
    """Change a step that was requested at a return; pydevd has seen the return already, or looks at no other call."""
    kinds = ("INTO", "OVER", "RETURN")
    for suffix in ("", "_MY_CODE"):
        if state.pydev_step_cmd in {getattr(commands, f"CMD_STEP_{kind}{suffix}") for kind in kinds}:
            is_monitored = sys.version_info >= (3, 12)
            state.pydev_step_cmd = getattr(commands, f"CMD_STEP_{'INTO' if is_monitored else 'OVER'}{suffix}")
            state.pydev_step_stop = None if is_monitored else frame.f_back
            return


def keep_uncompiled(function: Callable[..., object]) -> None:
    """Make torch.compile call a function as it is, with all that it calls, also if torch is imported later.

    Has no effect with versions of torch before 2.7.
    """
    _uncompiled.append(function)
    after_import(COMPILER, lambda _module: _skip_all())


_uncompiled: list[Any] = []


def _skip_all() -> None:
    bindings: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    with contextlib.suppress(AttributeError, TypeError):  # private names, which older versions do not have
        skip = bindings._FrameAction.SKIP  # noqa: SLF001 - as above
        strategy = bindings._FrameExecStrategy(skip, skip)  # noqa: SLF001 - for the function, and for what it calls
        for function in _uncompiled:
            function._torchdynamo_disable = True  # noqa: SLF001 - as `torch.compiler.disable` does
            bindings.set_code_exec_strategy(function.__code__, strategy)

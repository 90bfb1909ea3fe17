"""Post-mortem debugging.

The first uncaught exception holds its process for a limited time so that a debugger can attach.

    exception --> excepthook --> announced "crashed" --> a debugger attaches --> it stops at the raising frame
                                        |                                              | continue, or detach
                                        +----- no debugger attached in time -----------+--> the original excepthook

A debugger that was attached before stops at the exception first; if its user detaches there, the process is not held.

Python's own excepthook, which prints the traceback, is called before the hold, so that a developer can read the
traceback in the log before deciding whether to attach. torch replaces the hook when it initializes a process group:
torch's hook calls the previous hook, collects its output, and prints this output at the end with the rank in front of
each line. This module prints the output in the same form before the hold.

Others replace the hooks without calling the previous one (typer, rich, a job's own). Then the main thread is held when
the interpreter begins to exit: Python has stored the exception, and its traceback keeps the frames. A thread is held
after the hook that replaced this module's.

Until a crash, nothing is imported or traced. After the hold, the process exits as it would without this module, with
the same traceback and exit status. SystemExit and KeyboardInterrupt do not count as crashes. Workers of
multiprocessing, whose exceptions are always caught, can use `relay_agent.hold_on_crash`. A forked child is held only if
it calls `install` itself.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from relay_agent.debuggee.debugger import debugger, pydevd_debugger
from relay_agent.debuggee.stopping import untraced
from relay_agent.debugpy_internals.table import POST_MORTEM
from relay_agent.job import gevent_originals
from relay_agent.job.stderr import describe_exception, write_line
from relay_agent.stacks.in_process import is_users

Hold = Callable[[str], bool]
"""Waits for a debugger and returns whether one is attached. The argument describes the exception in one line."""


class _Installed(NamedTuple):
    hold: Hold
    end_hold: Callable[[], None]
    is_lost: Callable[[], bool]
    owner: int
    """Process id of the caller of `install`; a forked child has another id."""
    crashed: threading.Lock
    """Acquired by the first crash and never released."""


TORCH_HOOK = "_distributed_excepthook"
"""The name of torch's excepthook, a closure in `torch.distributed.distributed_c10d`."""

_installed: _Installed | None = None
_held: dict[int, TracebackType] = {}
"""Tracebacks of the exceptions that are being held, by thread ident."""


def tracebacks() -> Mapping[int, TracebackType]:
    """Return the tracebacks of held threads by ident; the stacks of these threads lack the frames that raised."""
    return dict(_held)


def crash_place() -> str:
    """Return where the user's code has raised this thread's held exception, as in `train.py:41`; "" if it has not."""
    place, traceback = "", _held.get(threading.get_ident())
    while traceback is not None:
        if is_users(traceback.tb_frame):
            file = os.path.basename(traceback.tb_frame.f_code.co_filename)  # noqa: PTH119 - pathlib costs 10 ms
            place = f"{file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def install(
    hold: Hold, end_hold: Callable[[], None] = lambda: None, is_lost: Callable[[], bool] = lambda: False
) -> None:
    """Hold this process at its first uncaught exception, in any thread; hooks that are already set run after the hold.

    Args:
        hold: Waits for a debugger.
        end_hold: Called when the user has continued or detached, or no debugger attached in time, unless the process is
            about to exit.
        is_lost: Returns whether the debugger was lost because the node's agent was killed; the hold then begins again.
    """
    global _installed  # noqa: PLW0603 - a process crashes once
    before = _installed
    crashed_here = before.crashed if before is not None and before.owner == os.getpid() else threading.Lock()
    _installed = _Installed(hold, end_hold, is_lost, os.getpid(), crashed_here)
    if before is not None:
        return
    main_hook, thread_hook = sys.excepthook, threading.excepthook

    def crashed(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        def hook() -> None:
            main_hook(kind, error, traceback)
            _print_collected(sys._getframe(1))  # noqa: SLF001 - its documented name

        _hold_and_call(error, hook, prints_only=_only_prints(main_hook))

    def thread_crashed(arguments: threading.ExceptHookArgs) -> None:
        _hold_and_call(
            arguments.exc_value, lambda: thread_hook(arguments), prints_only=thread_hook is threading.__excepthook__
        )

    sys.excepthook = crashed
    threading.excepthook = thread_crashed
    _hold_after_other_hooks()


def _hold_after_other_hooks() -> None:
    """Hold at an exception whose hook is not this module's any more; does nothing after a hold.

    Nothing public is early enough: when `atexit` functions run, the main thread counts as ended, and debugpy exits.
    """
    python: Any = threading  # both names exist in all versions up to 3.14
    if hasattr(python, "_register_atexit"):
        python._register_atexit(_hold_at_exit)  # noqa: SLF001 - see above; `concurrent.futures` also needs it
    if hasattr(python, "_make_invoke_excepthook"):
        make = python._make_invoke_excepthook  # noqa: SLF001 - each new thread calls it
        python._make_invoke_excepthook = partial(_make_holding, make)  # noqa: SLF001 - likewise


def _make_holding(make: Callable[[], Callable[[threading.Thread], None]]) -> Callable[[threading.Thread], None]:
    """Return a function that calls the hook of `threading` and then holds; a thread calls it for its exception."""
    invoke = make()

    def invoke_and_hold(thread: threading.Thread) -> None:
        error = sys.exc_info()[1]
        invoke(thread)
        if error is not None:
            hold_at(error, is_uncaught=True)

    return invoke_and_hold


def _hold_at_exit() -> None:
    error = getattr(sys, "last_value", None)  # Python sets it before it calls the hook
    if error is not None and _ends_the_program(error):
        hold_at(error, is_uncaught=True)


def _ends_the_program(error: BaseException) -> bool:
    """Whether an exception has left the program; pytest and IPython also store those that they have caught."""
    if error.__traceback__ is None:
        return False
    outermost = error.__traceback__.tb_frame
    is_script = outermost.f_code.co_name == "<module>" and outermost.f_globals.get("__name__") == "__main__"
    return is_script or outermost.f_code.co_name == "_run_module_as_main"  # python -m


def _hold_and_call(error: BaseException | None, hook: Callable[[], object], *, prints_only: bool) -> None:
    """Hold the process and call the original hook: before the hold if it only prints, otherwise after it."""
    if prints_only:
        hook()
    if error is not None:
        hold_at(error, is_uncaught=True)
    if not prints_only:
        hook()


def _only_prints(hook: object) -> bool:
    """Whether a hook for uncaught exceptions is Python's own hook, or torch's hook around Python's."""
    while getattr(hook, "__name__", "") == TORCH_HOOK:
        names, cells = hook.__code__.co_freevars, hook.__closure__  # type: ignore[attr-defined]
        hook = dict(zip(names, cells, strict=True))["old_hook"].cell_contents
    return hook is sys.__excepthook__


def _print_collected(frame: FrameType | None) -> None:
    """Print what torch's hook, which is among the callers, would otherwise print only after the hold."""
    collected, prefix = sys.stderr, ""
    stream = collected
    while frame is not None and type(stream) is io.StringIO:
        names = frame.f_locals if frame.f_code.co_name == TORCH_HOOK else {}
        if names.get("buf") is stream:
            stream, prefix = names.get("old_stderr"), f"{names.get('excepthook_prefix', '')}: "
        frame = frame.f_back
    if stream is not None and type(stream) is not io.StringIO and isinstance(collected, io.StringIO):
        lines = collected.getvalue().splitlines(keepends=True)
        stream.write("".join([prefix + line if line.strip() else line for line in lines]))
        stream.flush()
        collected.seek(0)
        collected.truncate()


def hold_at(error: BaseException, *, is_uncaught: bool = False) -> None:
    """Hold the process at an exception, once, if the run is debugged with `--debug-on-crash`.

    A failure in this function does not affect how the exception propagates.

    Args:
        error: The exception.
        is_uncaught: Whether it has left the program or its thread; False if a framework will catch it.
    """
    if _installed is None or _installed.owner != os.getpid() or not isinstance(error, Exception):
        return
    if not _installed.crashed.acquire(blocking=False):
        return
    if error.__traceback__ is not None:
        _held[threading.get_ident()] = error.__traceback__
    try:
        was_left = is_uncaught and _was_left() and not _installed.is_lost()
        has_stopped = is_uncaught and _stops_at_uncaught()
        while not was_left and _installed.hold(describe_exception(error)):
            if not has_stopped:
                _stop_at(error)
            if not _installed.is_lost():
                break
            has_stopped = False
            debugger.release()  # the lost debugger may still appear to be attached
    except KeyboardInterrupt:  # it ends only the hold: the exit status is that of the crash
        is_exiting = _exits_after(is_uncaught=is_uncaught)
        write_line("the hold was interrupted; exiting" if is_exiting else "the hold was interrupted")
    except Exception as failure:  # noqa: BLE001 - the crash proceeds as usual
        write_line(f"the hold ended: {describe_exception(failure)}")
    finally:
        _held.pop(threading.get_ident(), None)
        if not _exits_after(is_uncaught=is_uncaught):
            _installed.end_hold()


def _exits_after(*, is_uncaught: bool) -> bool:
    """Whether the process exits because of an exception in this thread; another thread may keep it alive."""
    main = threading.main_thread()
    others = (thread for thread in threading.enumerate() if thread is not main)
    return is_uncaught and threading.current_thread() is main and all(thread.daemon for thread in others)


def _stops_at_uncaught() -> bool:
    """Whether the attached debugger stops at uncaught exceptions and so has already stopped at this one."""
    return debugger.is_attached() and bool(getattr(pydevd_debugger(), "break_on_uncaught_exceptions", False))


def _was_left() -> bool:
    """Whether a debugger has stopped this thread at its uncaught exception, and its user has detached there."""
    if "pydevd" not in sys.modules or debugger.is_attached() or not POST_MORTEM.is_available():
        return False
    from _pydevd_bundle.pydevd_comm_constants import CMD_ADD_EXCEPTION_BREAK  # noqa: PLC0415 - in debug runs only

    thread = gevent_originals.threading.current_thread()  # as in pydevd
    return bool(getattr(thread, "stop_reason", None) == CMD_ADD_EXCEPTION_BREAK)


def _stop_at(error: Exception) -> None:
    """Stop the attached debugger where `error` was raised, until its user continues or detaches."""
    import debugpy  # noqa: PLC0415 - an attached debugger has imported it

    if hasattr(debugpy, "trigger_exception_handler"):  # available since 1.8.22
        debugpy.trigger_exception_handler(error, as_uncaught=False)
    elif error.__traceback__ is not None and debugger.is_attached() and POST_MORTEM.is_available():
        with POST_MORTEM.guarded():
            _stop_with_older_debugpy(error, error.__traceback__)


def _stop_with_older_debugpy(error: Exception, traceback: TracebackType) -> None:
    """Do what `debugpy.trigger_exception_handler` has done since 1.8.22."""
    pydevd = pydevd_debugger()
    thread = gevent_originals.threading.current_thread()  # as in pydevd
    innermost = traceback
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    with untraced(pydevd, thread):
        pydevd.do_stop_on_unhandled_exception(thread, innermost.tb_frame, {}, (type(error), error, traceback))

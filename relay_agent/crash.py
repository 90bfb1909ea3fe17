"""Post-mortem: the first uncaught exception holds its process until somebody has looked at it, or for a bounded time.

    exception --> excepthook --> announced "crashed" --> a debugger attaches --> it stands at the raising frame
                                        |                                              | continue, or detach
                                        +------- nobody came in time ------------------+--> the original excepthook

Nothing is imported or traced before. The process then ends as it would have ended: same traceback, same exit status.
SystemExit and KeyboardInterrupt are no crashes and pass. Workers of multiprocessing, whose exceptions never become
uncaught, can use `hold_on_crash`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

__all__ = ["Hold", "hold_on_crash", "install"]

Hold = Callable[[str], bool]
"""Waits for a debugger, told what happened in one line; returns whether one is attached."""

_hold: Hold | None = None
_held = threading.Lock()
"""Taken by the first crash and never given back."""


def install(hold: Hold) -> None:
    """Hold this process at its first uncaught exception, in whichever thread; hooks that are set already run after."""
    global _hold  # noqa: PLW0603 - a process crashes once
    first = _hold is None
    _hold = hold
    if not first:
        return
    main_hook, thread_hook = sys.excepthook, threading.excepthook

    def crashed(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        _post_mortem(error)
        main_hook(kind, error, traceback)

    def thread_crashed(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None:
            _post_mortem(arguments.exc_value)
        thread_hook(arguments)

    sys.excepthook = crashed
    threading.excepthook = thread_crashed


@contextlib.contextmanager
def hold_on_crash() -> Iterator[None]:
    """Hold the process if an exception leaves the block (or the decorated function), and then raise it as before.

    Does nothing in a run that is not debugged with `--debug-on-crash`.
    """
    try:
        yield
    except Exception as error:
        _post_mortem(error)
        raise


def _post_mortem(error: BaseException) -> None:
    """Let a developer look; whatever goes wrong here, the exception takes its way."""
    if _hold is None or not isinstance(error, Exception) or not _held.acquire(blocking=False):
        return
    with contextlib.suppress(Exception):
        if _hold(_describe(error)):
            import debugpy  # noqa: PLC0415 - an attached debugger has imported it

            debugpy.trigger_exception_handler(error, as_uncaught=False)


def _describe(error: BaseException) -> str:
    """Return the exception in one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__

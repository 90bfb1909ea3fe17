"""Running the main coroutine of a program: its event loop, its file descriptors, and its end after a signal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import importlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from relay_core.exit_codes import INTERRUPTED

logger = logging.getLogger(__name__)


# The event loop of a program: uvloop's if it is installed, otherwise asyncio's.
#
# uvloop does in C what asyncio does in Python for each packet. It is installed with the extra `fast`. An agent runs in
# the job's environment, to which nothing is added for this purpose.

VARIABLE = "RELAY_EVENT_LOOP"
"""Environment variable; `asyncio` selects asyncio's event loop, for comparisons or to work around a fault in uvloop."""

_TLS_ERROR = "Fatal error on SSL protocol"
"""How uvloop reports an exception in its TLS code (uvloop/sslproto.pyx)."""
_CLOSED = "the handler is closed"
"""The end of uvloop's exception for an operation on a closed connection (uvloop/handles/handle.pyx)."""

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, like `asyncio.run`, in the fastest event loop of this environment.

    The garbage collector no longer examines the objects that were created before: about 40,000, which are never freed.
    A collection of all objects would otherwise stop the program for 20 ms every few seconds.
    """
    gc.freeze()
    if os.environ.get(VARIABLE) != "asyncio":
        try:
            import uvloop  # noqa: PLC0415 - an optional package, and only of programs that run an event loop
        except ImportError:  # also if it was built for another system
            pass
        else:
            with contextlib.closing(_without_false_errors(main)) as coroutine:
                return uvloop.run(coroutine)
    return asyncio.run(main)


async def _without_false_errors(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine without reports from uvloop's TLS code about a TCP connection that has just been closed.

    Connections to a relay do not use that code (`relay_core.net.tls`), but those to Key Vault and Entra ID do. At the
    end of a program, uvloop sometimes writes a last TLS message to such a connection, and reports the exception with a
    traceback. In any case, the owner of the connection is informed that it has been closed.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context["message"] != _TLS_ERROR or not str(context.get("exception")).endswith(_CLOSED):
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(handle)
    return await main


# Open file descriptors: raises their limit, and logs one line instead of asyncio's tracebacks when none are left.
#
# A program with no descriptors left keeps its connections. asyncio stops accepting for a second and reports this with a
# traceback, up to a hundred times per second for each local port.

ENOUGH_DESCRIPTORS = 65536
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` and `connect` that indicate exhausted resources of this process or the system."""
LOG_INTERVAL = 60.0
"""Minimum number of seconds between two of these log lines."""


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors as far as possible without privileges."""
    try:
        resource = importlib.import_module("resource")  # Windows has neither the module nor such a limit
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS has an additional limit of its own
        logger.warning("cannot raise the limit on open file descriptors above %d: %s", soft, error)


def log_exhaustion(loop: asyncio.AbstractEventLoop) -> None:
    """Log one line when a port of this loop cannot accept a connection because no descriptor is left."""
    last_logged = -LOG_INTERVAL
    previous = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last_logged
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in EXHAUSTED:
            (previous or type(loop).default_exception_handler)(loop, context)
        elif loop.time() - last_logged >= LOG_INTERVAL:
            last_logged = loop.time()
            logger.warning("new connections must wait: no file descriptors left. hint: raise the limit (ulimit -n)")

    loop.set_exception_handler(handle)


# Running a program's main coroutine until it completes or a signal stops it.

FORCED_EXIT_AFTER = 1.0
"""Seconds between the second signal and the end of the process: time to remove files and to restore the terminal."""


def run_until_stopped(coroutine: Coroutine[Any, Any, Any], *, closing: str = "") -> int:
    """Run `coroutine` until it completes, or until SIGINT, SIGTERM, or SIGHUP of a closed terminal, cancels it.

    A second signal ends the process within `FORCED_EXIT_AFTER`, even if the coroutine or a thread does not end.
    A second SIGHUP does not: terminal and shell send one each.

    Args:
        coroutine: The program.
        closing: What the coroutine does when it is cancelled, for the log; "" for a program that ends immediately.

    Returns:
        0: The coroutine has completed or was stopped by a signal.
        130: A second signal has stopped it.

    Raises:
        Exception: Any exception of the coroutine.
    """
    status = 0

    def force() -> None:
        nonlocal status
        status = INTERRUPTED
        # Closing an event loop waits for all tasks and for the threads of its executor, however long that takes.
        timer = threading.Timer(FORCED_EXIT_AFTER, os._exit, [INTERRUPTED])
        timer.daemon = True
        timer.start()

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    main = _run(coroutine, closing, force)
    try:
        with contextlib.closing(coroutine), contextlib.closing(main), contextlib.suppress(KeyboardInterrupt):
            run(main)  # Ctrl-C raises before the event loop has its signal handlers, and on Windows, which has none
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return status


async def _run(coroutine: Coroutine[Any, Any, Any], closing: str, force: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    raise_descriptor_limit()
    log_exhaustion(loop)
    task = loop.create_task(coroutine, name="main")
    cancelled = stopped = False

    def cancel(*_signal: object) -> None:
        nonlocal cancelled
        if not cancelled:
            cancelled = True
            task.cancel()

    def stop(is_hangup: bool) -> None:
        nonlocal stopped
        if stopped and is_hangup:
            return
        if stopped:
            force()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)
        stopped = True
        if closing:
            logger.info("stopping: %s%s", closing, "" if is_hangup else "; a second Ctrl-C exits immediately")
        cancel()

    _handle_signals(loop, cancel, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not cancelled:
            raise


def _handle_signals(loop: asyncio.AbstractEventLoop, cancel: Callable[..., None], stop: Callable[[bool], None]) -> None:
    with contextlib.suppress(NotImplementedError):  # Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, False)
            # The loop calls `stop` at the task's next `await`. A task that imports modules may return before.
            signal.signal(number, cancel)
        # After `nohup`, the signal is ignored.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            loop.add_signal_handler(signal.SIGHUP, stop, True)

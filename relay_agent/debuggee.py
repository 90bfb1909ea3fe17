"""The debugger inside the job: how debugpy is started, and how the job waits for its developer.

debugpy listens on 127.0.0.1 and on a port of its own choice. Nothing here ever connects to that port: a connection
that is opened and closed again ends debugpy's readiness for good. Up to Python 3.11 a job with an armed debugger runs
several times slower, attached or not, so it is armed as late as possible and disarmed when nobody can come any more.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from relay_core.errors import RelayDebugError

if TYPE_CHECKING:
    import threading

__all__ = ["arm", "disarm", "find_foreign_port", "is_armed", "is_attached", "wait_for_attach"]

POLL_INTERVAL = 0.05
"""Seconds between two looks at debugpy, which tells nobody when a debugger has attached."""

_armed_here = False
"""Whether it was `arm` that started debugpy in this process."""


def is_armed() -> bool:
    """Whether debugpy traces this process, whoever started it."""
    pydevd = sys.modules.get("pydevd")
    return pydevd is not None and pydevd.get_global_debugger() is not None


def is_attached() -> bool:
    """Whether a debugger is attached and has sent its breakpoints."""
    if not is_armed():
        return False
    import debugpy  # noqa: PLC0415 - imported in debug runs only

    return bool(debugpy.is_client_connected())


def arm() -> int:
    """Start debugpy and return the port on 127.0.0.1 where it listens.

    Raises:
        RelayDebugError: debugpy is missing or did not start.
    """
    global _armed_here  # noqa: PLW0603 - so is debugpy's own state
    # debugpy reads this when it is imported; its warning about frozen modules is about the standard library only.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    try:
        import debugpy  # noqa: PLC0415 - imported in debug runs only

        with _without_variable("DEBUGPY_ADAPTER_ENDPOINTS"):
            port: int = debugpy.listen(("127.0.0.1", 0))[1]
    except (ImportError, RuntimeError, OSError) as error:
        raise RelayDebugError(f"debugpy did not start: {error}") from error
    _armed_here = True
    _answer_without_delay()
    return port


def disarm() -> None:
    """Stop what `arm` started and give this thread, and those to come, full speed back; it cannot be armed again."""
    if not _armed_here:
        return
    import pydevd  # noqa: PLC0415 - what `arm` has imported

    pydevd.stoptrace()


def find_foreign_port() -> int | None:
    """Return the port of a `debugpy.listen` that was not ours, or None if it cannot be told.

    debugpy keeps the port that it was asked for only in its adapter's command line. A port 0 stays unknown.
    """
    api = sys.modules.get("debugpy.server.api")
    adapter = getattr(api, "_adapter_process", None)
    command = list(getattr(adapter, "args", ()))
    if "--port" not in command[:-1]:
        return None
    return int(command[command.index("--port") + 1]) or None


def wait_for_attach(seconds: float, hopeless: threading.Event) -> bool:
    """Wait until a debugger is attached; stop after `seconds`, and at once when `hopeless` is set.

    This is debugpy's own `wait_for_client`, which looks at the same fact, with an end.
    """
    deadline = time.monotonic() + seconds
    while not is_attached():
        remaining = deadline - time.monotonic()
        if remaining <= 0 or hopeless.wait(min(POLL_INTERVAL, remaining)):
            return is_attached()
    return True


def _answer_without_delay() -> None:
    """Turn Nagle's algorithm off between pydevd and its adapter: it costs 40 ms on each answer to the debugger."""
    import socket  # noqa: PLC0415 - the slowest import here, and needed in debug runs only

    import pydevd  # noqa: PLC0415 - what `arm` has imported

    with contextlib.suppress(AttributeError, OSError):  # pydevd's inside may change; the delay is bearable
        pydevd.get_global_debugger().writer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@contextlib.contextmanager
def _without_variable(name: str) -> Iterator[None]:
    """Hide an environment variable, here from the adapter: the file it names belongs to another debuggee."""
    value = os.environ.pop(name, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[name] = value

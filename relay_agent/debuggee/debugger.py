"""The debugger inside the job: how debugpy is started, and how the job waits for its developer.

debugpy listens on 127.0.0.1 and on a port of its own choice. Nothing here ever connects to that port: a connection
that is opened and closed again ends debugpy's readiness for good. Up to Python 3.11 a job with an armed debugger runs
several times slower, attached or not, so it is armed as late as possible and released as soon as nobody is there.

Everything may be called from any thread, again and again. A forked child starts anew: see
`relay_agent.debuggee.fork_guard`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from relay_agent.debuggee import fork_guard, pydevd_patches, tracing
from relay_core.errors import ConfigurationError, RelayDebugError

__all__ = ["arm", "connect", "find_foreign_port", "is_armed", "is_attached", "release", "wait_for_attach"]

POLL_INTERVAL = 0.05
"""Seconds between two looks at debugpy, which tells nobody when a debugger has attached."""
GOODBYE_TIME = 5.0
"""Seconds for a debugger's departure to reach this process; its socket may be closed before debugpy has noticed."""

_KEPT_OF_PYTHON = {"PYTHONHOME"}
"""What debugpy's adapter needs of the variables that are for the job's interpreter."""
_NOT_FOR_THE_ADAPTER = ("PYTHON", "RELAY_", "AZRELAY_", "DEBUGPY_ADAPTER_ENDPOINTS")
"""Such as PYTHONWARNINGS=error, a sitecustomize in PYTHONPATH, secrets, and a file that is another debuggee's."""

_lock = threading.Lock()
_port: int | None = None
"""Where the debugpy that `arm` has started listens."""
_dialled = False
"""Whether `connect` has started debugpy, and it has not been released since."""
_released = False
"""Whether its tracing is off."""
_is_starting = False
"""Whether debugpy is being started. A debugger may have sent its breakpoints before all threads are traced."""


def is_armed() -> bool:
    """Whether debugpy traces this process, whoever started it."""
    return _debugger() is not None and not _released


def is_attached() -> bool:
    """Whether a debugger is attached and has sent its breakpoints, and they will be hit."""
    debugger = _debugger()
    return debugger is not None and not _is_starting and bool(debugger.is_attached())


def arm(*, follow_children: bool = False) -> int:
    """Make debugpy ready for a debugger, and return the port on 127.0.0.1 where it listens.

    The first call starts it, which takes a third of a second; after `release` it is put back to work. Breakpoints are
    hit from then on, in functions that are running as well.

    Args:
        follow_children: Whether Python processes that this one starts stop for the debugger too. Then they wait for it,
            without end, while one is attached that does not follow them. The first call decides for all.

    Raises:
        RelayDebugError: debugpy is missing, did not start, or is in use on a port that cannot be told.
    """
    global _port, _dialled, _released  # noqa: PLW0603 - a process has one debugger
    with _lock:
        if _dialled:
            _wait_for_goodbye()
            _dialled = False
        if _debugger() is None:
            _port = _listen(follow_children=follow_children)
        elif _port is None:
            return _foreign_port()
        elif _released:
            tracing.start_tracing()
        _released = False
        return _port


def connect(port: int, *, follow_children: bool = False) -> None:
    """Connect to the debug adapter of an editor that listens on a port of 127.0.0.1.

    Breakpoints are hit from then on. When the connection ends, so does the debugger; `release` gives full speed back.

    Raises:
        RelayDebugError: debugpy is in use already, missing, or cannot connect.
    """
    global _port, _dialled, _released
    with _lock:
        if is_attached():
            raise RelayDebugError("a debugger is attached already")
        if _dialled:
            _wait_for_goodbye()
        if _debugger() is not None:
            raise RelayDebugError(
                "debugpy listens in this process already",
                hint='use a launch configuration with "connect" instead of "listen"',
            )
        with _starting(follow_children=follow_children) as debugpy:
            _connect(debugpy, port)
        _port, _dialled, _released = None, True, False


def release() -> None:
    """Give all threads full speed back, once the debugger has left; `arm` makes this process debuggable again.

    A debugpy that listens and was not started by `arm` is left alone.

    Raises:
        RelayDebugError: a debugger is attached, or debugpy does not allow it.
    """
    global _dialled, _released
    with _lock:
        is_foreign = _port is None and not _dialled and _debugger() is not None
        if _released or is_foreign or "pydevd" not in sys.modules:
            return
        _wait_for_goodbye()
        tracing.stop_tracing()
        _dialled, _released = False, True


def _wait_for_goodbye() -> None:
    """Wait until this process has noticed that its debugger has left; one that was dialled goes altogether.

    Raises:
        RelayDebugError: it has not left.
    """
    deadline = time.monotonic() + GOODBYE_TIME
    while is_attached() or (_dialled and _debugger() is not None):
        if time.monotonic() > deadline:
            raise RelayDebugError("a debugger is attached", hint="detach it first")
        time.sleep(POLL_INTERVAL)


def find_foreign_port() -> int | None:
    """Return the port where debugpy listens already, or None if there is none or it cannot be told.

    debugpy keeps the port that it was asked for only in its adapter's command line. A port 0 stays unknown.
    """
    if _port is not None and _debugger() is not None:
        return _port
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


def _debugger() -> Any:
    """Return pydevd's debugger of this process; it is gone when debugpy's adapter has died."""
    pydevd: Any = sys.modules.get("pydevd")  # which another thread may be importing at this moment
    return pydevd.get_global_debugger() if hasattr(pydevd, "get_global_debugger") else None


def _listen(*, follow_children: bool) -> int:
    with _starting(follow_children=follow_children) as debugpy:
        return int(debugpy.listen(("127.0.0.1", 0))[1])


@contextlib.contextmanager
def _starting(*, follow_children: bool) -> Iterator[ModuleType]:
    """Yield debugpy, configured, to be started in the block.

    Raises:
        RelayDebugError: it is missing, or does not start.
    """
    global _is_starting  # noqa: PLW0603 - a process has one debugger
    # debugpy reads this when it is imported; its warning about frozen modules is about the standard library only.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    fork_guard.install(then=_start_anew)
    _is_starting = True
    try:
        import debugpy  # noqa: PLC0415 - in debug runs only, here and below
        from debugpy.server import api  # noqa: PLC0415

        debugpy.configure(subProcess=follow_children, pythonEnv=_adapter_environment())
        # Left by an adapter that has died, or by the parent of a forked child:
        api.listen.called = False
        sys.modules["pydevd"].SetupHolder.setup = None  # imported by debugpy.server.api
        pydevd_patches.install()  # before pydevd has a connection
        yield debugpy
        if _released:
            tracing.start_tracing()
        else:
            tracing.reach_threads()
        if follow_children:
            pydevd_patches.follow_into_children()
    except (ImportError, ValueError, RuntimeError, OSError) as error:
        raise RelayDebugError(f"debugpy did not start: {error}") from error
    finally:
        _is_starting = False


def _connect(debugpy: ModuleType, port: int) -> None:
    """Call `debugpy.connect`, which by itself does not return before an editor has sent all its breakpoints."""
    api = sys.modules["debugpy.server.api"]
    settrace = api._settrace  # noqa: SLF001 - `debugpy.listen` calls it with the same argument
    api._settrace = functools.partial(settrace, wait_for_ready_to_run=False)  # type: ignore[attr-defined] # noqa: SLF001
    try:
        debugpy.connect(("127.0.0.1", port))
    finally:
        api._settrace = settrace  # type: ignore[attr-defined] # noqa: SLF001


def _adapter_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_OF_PYTHON or not name.startswith(_NOT_FOR_THE_ADAPTER)
    }


def _foreign_port() -> int:
    port = find_foreign_port()
    if port is None:
        raise ConfigurationError(
            "debugpy is in use already, on a port that cannot be told", hint="leave debugpy.listen() to relay_agent"
        )
    return port


def _start_anew() -> None:
    """Forget, in a forked child, the debugger of its parent."""
    global _lock, _port, _dialled, _is_starting  # noqa: PLW0603 - a process has one debugger
    _lock = threading.Lock()  # which another thread of the parent may have held
    _port, _dialled, _is_starting = None, False, False

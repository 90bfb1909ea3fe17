"""How debugpy is started: what it needs to be told first, and which of its habits stand in the way here.

It uses debugpy's inside (`debugpy.server.api`, `pydevd`); the states that a start leads to are in `debugger`.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType

from relay_agent.debuggee import pydevd_patches

__all__ = ["connect", "find_adapter_port", "listen", "load"]

_KEPT_OF_PYTHON = {"PYTHONHOME"}
"""What debugpy's adapter needs of the variables that are for the job's interpreter."""
_NOT_FOR_THE_ADAPTER = ("PYTHON", "RELAY_", "AZRELAY_", "DEBUGPY_ADAPTER_ENDPOINTS")
"""Such as PYTHONWARNINGS=error, a sitecustomize in PYTHONPATH, secrets, and a file that is another debuggee's."""


def load(*, follow_children: bool) -> ModuleType:
    """Import and configure debugpy, ready to listen or to connect.

    Raises:
        ImportError: it is missing.
        ValueError: it does not take the configuration.
    """
    # debugpy reads this when it is imported; its warning about frozen modules is about the standard library only.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    import debugpy  # noqa: PLC0415 - in debug runs only, here and below
    from debugpy.server import api  # noqa: PLC0415

    debugpy.configure(subProcess=follow_children, pythonEnv=_adapter_environment())
    # Left by an adapter that has died, or by the parent of a forked child:
    api.listen.called = False
    sys.modules["pydevd"].SetupHolder.setup = None  # imported by debugpy.server.api
    pydevd_patches.install()  # before pydevd has a connection
    return debugpy


def listen(debugpy: ModuleType) -> int:
    """Have debugpy listen, and return its port on 127.0.0.1."""
    return int(debugpy.listen(("127.0.0.1", 0))[1])


def connect(debugpy: ModuleType, port: int) -> None:
    """Call `debugpy.connect`, which would otherwise not return before an editor has sent all its breakpoints."""
    api = sys.modules["debugpy.server.api"]
    settrace = api._settrace  # noqa: SLF001 - `debugpy.listen` calls it with the same argument
    api._settrace = functools.partial(settrace, wait_for_ready_to_run=False)  # type: ignore[attr-defined] # noqa: SLF001
    try:
        debugpy.connect(("127.0.0.1", port))
    finally:
        api._settrace = settrace  # type: ignore[attr-defined] # noqa: SLF001


def find_adapter_port() -> int | None:
    """Return the port that the job's own `debugpy.listen` was asked for, or None if that is unknown.

    debugpy keeps it in its adapter's command line only. A port 0 stays unknown.
    """
    api = sys.modules.get("debugpy.server.api")
    adapter = getattr(api, "_adapter_process", None)
    command = list(getattr(adapter, "args", ()))
    if "--port" not in command[:-1]:
        return None
    return int(command[command.index("--port") + 1]) or None


def _adapter_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_OF_PYTHON or not name.startswith(_NOT_FOR_THE_ADAPTER)
    }

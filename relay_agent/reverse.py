"""The job's side of dialling a listening editor: `debugpy.connect`, from the helper thread and with an end."""

from __future__ import annotations

import contextlib
import os
import socket

from relay_agent import debuggee, fork_guard, tracing
from relay_core.errors import RelayDebugError

__all__ = ["connect"]


def connect(port: int, *, follow_children: bool) -> None:
    """Connect debugpy to an editor's adapter on 127.0.0.1.

    Raises:
        RelayDebugError: debugpy is in use already, missing, or cannot connect.
    """
    if debuggee.is_attached():
        raise RelayDebugError("a debugger is attached already")
    if debuggee.find_foreign_port() is not None:
        raise RelayDebugError(
            "debugpy listens in this process already",
            hint='use a launch configuration with "connect" instead of "listen"',
        )
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    fork_guard.install(then=lambda: None)
    try:
        import debugpy  # noqa: PLC0415 - in debug runs only, here and below
        import pydevd  # noqa: PLC0415

        debugpy.configure(subProcess=follow_children)
        debugpy.connect(("127.0.0.1", port))
    except (ImportError, RuntimeError, OSError) as error:
        raise RelayDebugError(f"debugpy did not connect: {error}") from error
    tracing.reach_threads()
    with contextlib.suppress(AttributeError, OSError):  # as in `debuggee`
        pydevd.get_global_debugger().writer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

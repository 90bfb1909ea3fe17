"""How a process reaches the node's agent: it connects, or starts the agent if there is none.

    connect --------> connected
       | nobody there
    lock ---- taken: an agent starts or leaves; look again
       | got it
    bind the socket, start the agent, give it both, connect

The agent inherits the lock, so it is held exactly as long as the agent lives, and a socket that is bound already: who
comes while it is still importing waits in the socket's queue.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from relay_agent.node.directory import NodeDirectory
from relay_agent.python_path import in_front
from relay_core.errors import ConfigurationError, RelayUnreachable

__all__ = ["STARTER_VARIABLE", "connect_or_start"]

PATIENCE = 15.0
"""Seconds for an agent that is leaving to be gone, or for one that another process starts to be there."""
LOOK_INTERVAL = 0.05
BACKLOG = 1024
"""Processes that may queue up: all ranks of a node start at the same moment."""
STARTER_VARIABLE = "RELAY_AGENT_STARTER"
"""Set in the agent's own environment: the process that started it, which may have ended before it registers."""


def connect_or_start(
    directory: NodeDirectory, gate: threading.Lock
) -> tuple[socket.socket, subprocess.Popen[bytes] | None]:
    """Return a connection to the node's agent, and the agent's process if it was started for it.

    Args:
        directory: Where it is met.
        gate: Held while an agent is started, which must not be left half done; who takes it for good, because this
            process ends, keeps agents from being started.

    Raises:
        ConfigurationError: no agent can be started here.
        RelayUnreachable: an agent is there and does not let anybody in.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        if connection := _connect(directory):
            return connection, None
        with gate:
            process = _start_if_alone(directory)
        if process is not None and (connection := _connect(directory)):
            return connection, process
        if time.monotonic() > deadline:
            raise RelayUnreachable("the node's agent process does not answer", hint="look for its last words above")
        time.sleep(LOOK_INTERVAL)


def _connect(directory: NodeDirectory) -> socket.socket | None:
    """Return a connection to the agent; None if nobody is there, or a directory in which nobody can be."""
    with contextlib.ExitStack() as at_failure:
        connection = at_failure.enter_context(socket.socket(socket.AF_UNIX))
        try:
            connection.connect(str(directory.socket_path))
            directory.require_private()
        except OSError:
            return None
        at_failure.pop_all()
        return connection


def _start_if_alone(directory: NodeDirectory) -> subprocess.Popen[bytes] | None:
    """Start the agent unless there is one."""
    lock = directory.try_lock()
    if lock is None:
        return None
    try:
        return _start(directory, lock)
    except BaseException:
        directory.clean()
        raise
    finally:
        os.close(lock)


def _start(directory: NodeDirectory, lock: int) -> subprocess.Popen[bytes]:
    """Start the agent; the caller holds the lock."""
    if not sys.executable:
        raise ConfigurationError("this Python is embedded and has no executable that could run the agent")
    directory.socket_path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory.socket_path))
        listener.listen(BACKLOG)
        descriptors = (listener.fileno(), lock)
        command = (
            sys.executable,
            "-m",
            "relay_agent",
            "node-agent",
            *map(str, (directory.root, directory.name, *descriptors)),
        )
        try:
            with _unpatched_by_pydevd():
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # the job's is its own
                    pass_fds=descriptors,
                    env=_environment(),
                    start_new_session=True,
                )
        except OSError as error:
            raise ConfigurationError(f"the agent process cannot be started: {error}") from error


def _unpatched_by_pydevd() -> contextlib.AbstractContextManager[Any]:
    """Keep a debugger that is already active from making the agent a process to debug."""
    monkey = sys.modules.get("_pydev_bundle.pydev_monkey")
    return monkey.skip_subprocess_arg_patch() if monkey is not None else contextlib.nullcontext()


def _environment() -> dict[str, str]:
    """Return the job's environment, in which `-m relay_agent` finds this very package and not a file of the job."""
    environment = dict(os.environ, PYTHONSAFEPATH="1", **{STARTER_VARIABLE: str(os.getpid())})
    root = Path(__file__).resolve().parent.parent.parent
    if root.name not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = in_front(root, environment.get("PYTHONPATH"))
    return environment

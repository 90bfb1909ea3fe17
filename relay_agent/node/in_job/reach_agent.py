"""Connection of a process to its node's agent, which it starts if there is none.

    connect --------> connected
       | no listener
    lock ---- held: an agent is starting or exiting; retry
       | acquired
    bind the socket, start the agent, pass it both, connect

The agent inherits the lock, so the lock is held exactly as long as the agent runs. It also inherits the socket, which
is already listening: processes that connect while the agent is still importing wait in the socket's backlog.

The agent also serves the other processes of the node, so it must survive whatever terminates the process that started
it. It has its own session, which protects it from the signals that launchers and terminals send to process groups. It
is not a descendant of the job (`detached`): debuggers and launchers that terminate a process with all its descendants
do not find it, and a job that waits for any child does not meet it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from relay_agent.debugpy_internals.table import UNATTACHED_AGENT
from relay_agent.job.gevent_originals import os, subprocess, threading, time
from relay_agent.job.own_descriptor import OwnDescriptor
from relay_agent.node.directory import NODE_DIR_VARIABLE, STARTER_VARIABLE, NodeDirectory
from relay_agent.node.in_job.connection import AgentConnection, OwnSocket, unix_socket
from relay_agent.node.in_job.detached import FIRST_NUMBER, Report, start_detached
from relay_agent.node.in_job.own_python import agent_environment, find_python
from relay_core.errors import ConfigurationError, RelayUnreachable

PATIENCE = 15.0
"""Seconds to wait for an exiting agent, or for one that another process is starting."""
RETRY_INTERVAL = 0.05
MIN_DESCRIPTORS = 64
"""Limit of open files below which no agent is started: the job might lack those that are used for it."""
STARTS = 2
"""Number of times that an agent is started which does not report that it runs; the first one may have been killed."""
BACKLOG = 1024
"""Number of connections that the socket queues; all ranks of a node start at the same time."""


def connect_or_start(directory: NodeDirectory, gate: threading.Lock) -> AgentConnection:
    """Return a connection to the node's agent; start the agent if there is none.

    Args:
        directory: The directory of the agent's socket and lock.
        gate: Held while an agent is being started. An exiting process acquires it permanently, which lets a start in
            progress complete and prevents others.

    Raises:
        ConfigurationError: no agent can be started here.
        RelayUnreachable: an agent is running but does not accept connections.
    """
    _require_descriptors()
    deadline = time.monotonic() + PATIENCE
    while True:
        if connection := _connect(directory):
            return connection
        with gate:
            try:
                started = _start_if_alone(directory)
            except OSError as error:
                raise ConfigurationError(
                    f"cannot start the agent in {directory.root}: {error.strerror or error}",
                    hint=f"free some resources, or set {NODE_DIR_VARIABLE} to a directory on another disk",
                ) from error
        if started and (connection := _connect(directory)):
            return connection
        if time.monotonic() > deadline:
            raise RelayUnreachable("the node's agent process is not responding", hint="see its log lines above")
        time.sleep(RETRY_INTERVAL)


def _require_descriptors() -> None:
    """Check how many files this process may open.

    Raises:
        ConfigurationError: so few that the job might lack some.
    """
    # Not `resource`, because the job may have a file of that name; Windows has neither.
    limit = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1  # -1: unlimited
    if 0 <= limit < MIN_DESCRIPTORS:
        raise ConfigurationError(
            f"this process may open only {limit} files",
            hint=f"raise the limit to {MIN_DESCRIPTORS} or more (ulimit -n)",
        )


def _connect(directory: NodeDirectory) -> AgentConnection | None:
    """Return a connection to the agent; None if no agent is listening or the directory does not exist."""
    with contextlib.ExitStack() as at_failure:
        connected = unix_socket()
        connection = at_failure.enter_context(contextlib.closing(AgentConnection(connected)))
        try:
            connected.connect(str(directory.socket_path))
            directory.require_private()
        except OSError:
            return None
        at_failure.pop_all()
        return connection


def _start_if_alone(directory: NodeDirectory) -> bool:
    """Start the agent unless one holds the lock, and return whether this call has started it."""
    lock = directory.try_lock()
    if lock is None:
        return False
    own = OwnDescriptor(lock)
    try:
        _start(directory, lock)
    except BaseException:
        directory.clean()
        raise
    finally:
        own.close()
    return True


def _start(directory: NodeDirectory, lock: int) -> None:
    """Start the agent, and wait until it runs this package; the caller holds the lock."""
    command = (find_python(), "-m", "relay_agent", "node-agent", str(directory.root), directory.name)
    environ = {**agent_environment(), STARTER_VARIABLE: str(os.getpid())}
    directory.socket_path.unlink(missing_ok=True)
    listener = unix_socket()
    with contextlib.closing(OwnSocket(listener)):  # not `with listener`, which would close a file of the job
        listener.bind(str(directory.socket_path))
        listener.listen(BACKLOG)
        for _ in range(STARTS):
            if _run(command, environ, (listener.fileno(), lock)):
                return
    raise ConfigurationError("the agent process failed to start", hint="see the lines above")


def _run(command: Sequence[str], environ: Mapping[str, str], descriptors: tuple[int, ...]) -> bool:
    """Start the agent, and return False if it has exited before it reported that it runs."""
    with Report() as report:
        received = (*descriptors, report.writing)
        numbers = range(FIRST_NUMBER, FIRST_NUMBER + len(received))
        if not start_detached((*command, *map(str, numbers)), environ, received):
            return _run_child((*command, *map(str, descriptors)), environ, descriptors)
        try:
            report.read(PATIENCE)
        except EOFError:
            return False
        except TimeoutError:
            pass  # the machine is busy; the agent accepts connections later
    return True


def _run_child(command: Sequence[str], environ: Mapping[str, str], descriptors: tuple[int, ...]) -> bool:
    """Start the agent as a child, which starts another process and exits; return False if it fails."""
    try:
        with _unpatched_by_pydevd():
            parent = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # stdout is for the output of the job
                pass_fds=descriptors,
                env=environ,
                start_new_session=True,
            )
    except OSError as error:
        raise ConfigurationError(f"cannot start the agent process: {error}") from error
    return parent.wait() == 0


def _unpatched_by_pydevd() -> contextlib.AbstractContextManager[Any]:
    """Prevent an active debugger from attaching to the agent as a child process."""
    monkey: Any = sys.modules.get("_pydev_bundle.pydev_monkey")
    if monkey is not None and UNATTACHED_AGENT.is_available():
        with UNATTACHED_AGENT.guarded():
            return monkey.skip_subprocess_arg_patch()  # type: ignore[no-any-return] # pydevd has no types
    return contextlib.nullcontext()

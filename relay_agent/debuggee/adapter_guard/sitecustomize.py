"""Restricts debugpy's adapter to the user of its process, and to one editor at a time; Python runs this file first.

The adapter's port for debuggers requires no authentication, and every user of a machine can reach 127.0.0.1. So each
connection is checked before the adapter sees it. For this, only the standard library's `socket.accept` is replaced, so
no change in debugpy can leave the ports open.

The thread that accepts editors must survive. If an editor closes its connection immediately (microsoft/debugpy#1308),
if another editor closed its connection a moment earlier, or if the adapter has no file descriptors left, the thread
exits, and every later attach hangs. So `accept` tries again until there are descriptors, and `Client.__init__`, which
runs in that thread, is replaced as well: an error in it no longer ends the thread. In addition, `attach` waits until
the sessions of disconnected editors have ended, instead of being refused. With a version of debugpy in which these
names differ, debugpy's own functions run.

The adapter also answers the request with which a debugged process asks whether its output was passed on.

debugpy's adapter inherits the job's output and keeps it open, although it never writes to it. Whoever reads the output
to its end, such as a launcher or `| tee`, would wait for the adapter, which stays while an editor is connected. So the
inherited streams are replaced. The adapter also waits for a process to connect to it: without limit, except that an
editor that leaves meanwhile ends the wait, and then the adapter exits. Here, only the end of the process ends it.

Before the adapter listens, it describes its environment in its log. For this, it reads the metadata of all installed
packages, even if the log is off. This takes 75 ms for 117 packages while an editor waits, so it is left out.
"""

import contextlib
import errno
import functools
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SESSION_END_LIMIT = 5.0
"""Maximum time in seconds that a new editor waits for the previous session to end; pydevd needs milliseconds, unless
the job's C code is holding the GIL."""
POLL_INTERVAL = 0.005
PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPROTO})
"""Errors of `accept` after which the next connection can be accepted, at the latest when resources are free again."""
ACCEPT_INTERVAL = 0.1
RECEIPT = "relayAgentReceipt"
"""Command of the request for a receipt; as in `pydevd_patches.relay_debug_output`."""
STARTER = "RELAY_AGENT_STARTER"
"""Variable with the process that is starting the adapter, as in `relay_agent.node.directory`."""
END_WAIT = "dont_wait_for_first_connection"
"""The function of debugpy's adapter."""
EXIT_INTERVAL = 1.0
"""Seconds between two checks whether the process has exited, on a system that does not report exits."""
SEND_BUFFER = 256 * 1024
"""Size of the send buffer of each connection in bytes. Output that is in the buffer has been passed on, and the
responses after it must wait for it; Linux's default is ten times as large."""


def guard_sockets() -> None:
    """Replace `socket.accept` in this process."""
    streams = [number for number in range(3) if is_open(number)]  # before anything is opened here
    del os.environ["PYTHONPATH"]  # the directory is for this process only, not for its children
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from relay_core.socket_tables import OwnersNotShown, own_user, shared_tables  # noqa: PLC0415 - now in `sys.path`

    del sys.path[0]
    tables, accept = shared_tables(), socket.socket.accept
    process = int(os.environ.pop(STARTER, os.getppid()))
    descriptor = open_process(process)

    @functools.cache
    def begin() -> None:
        """Do once what must follow the adapter's fork, which has no other threads; twice is harmless."""
        with contextlib.suppress(OSError, RuntimeError):  # without resources, the accepting thread continues anyway
            replace_streams(streams)
            threading.Thread(
                target=end_wait_at_exit, args=(process, descriptor, take_end_of_wait()), daemon=True
            ).start()

    def is_own(connection: socket.socket) -> bool:
        try:
            return tables.peer_owner(connection.getsockname()[:2], connection.getpeername()[:2]) == own_user()
        except OwnersNotShown:
            return True
        except OSError:  # the connection was reset, or its user cannot be determined at the moment
            return False

    def accept_own_user(self: socket.socket) -> tuple[socket.socket, Any]:
        begin()
        guard_clients()
        answer_receipts()
        while True:
            try:
                connection, address = accept(self)
            except OSError as error:
                if error.errno not in PASSING:  # the listener was closed
                    raise
                time.sleep(ACCEPT_INTERVAL)
                continue
            if is_own(connection):
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
                return connection, address
            connection.close()

    os.register_at_fork(after_in_child=skip_description)  # the adapter has imported its modules by then
    socket.socket.accept = accept_own_user  # type: ignore[method-assign] # the purpose of this file


def open_process(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process exits, or None if the system has none."""
    with contextlib.suppress(AttributeError, OSError):  # not Linux, before 5.3, or forbidden in this container
        return os.pidfd_open(pid)
    return None


def take_end_of_wait() -> Callable[[], None]:
    """Return what ends the adapter's wait for a first connection, which is then not ended by anything else."""
    names = vars(sys.modules["debugpy.adapter.servers"])
    end: Callable[[], None] = names.setdefault("relay_agent_end_wait", names.get(END_WAIT, lambda: None))
    names[END_WAIT] = lambda: None
    return end


def end_wait_at_exit(pid: int, descriptor: int | None, end_wait: Callable[[], None]) -> None:
    """End the adapter's wait for a first connection when a process has exited.

    The adapter continues to wait for processes that have connected, such as a child of this one.
    """
    if descriptor is None:
        with contextlib.suppress(OSError):  # it has exited
            while True:
                os.kill(pid, 0)
                time.sleep(EXIT_INTERVAL)
    else:
        exit_poll = select.poll()
        exit_poll.register(descriptor, select.POLLIN)
        exit_poll.poll()
    end_wait()


def is_open(number: int) -> bool:
    """Return whether a file descriptor is in use; if the job has closed it, the adapter may use it for a socket."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def replace_streams(numbers: list[int]) -> None:
    """Let file descriptors refer to the null device; debugpy has closed Python's objects for them, but not these."""
    with Path(os.devnull).open("r+b", buffering=0) as null:
        for number in numbers:
            os.dup2(null.fileno(), number, inheritable=False)


def skip_description() -> None:
    """Let the adapter describe its environment only if its log is on."""
    log: Any = sys.modules.get("debugpy.common.log")
    describe = getattr(log, "describe_environment", None)
    if describe is not None and hasattr(log, "_levels"):  # otherwise, this is another version of debugpy
        log.describe_environment = lambda header: describe(header) if "info" in log._levels else None  # noqa: SLF001


def guard_clients() -> None:
    """Replace two methods of `Client`, once; the adapter imports this class before it accepts connections."""
    clients, sessions = (sys.modules.get(f"debugpy.adapter.{name}") for name in ("clients", "sessions"))
    client: Any = getattr(clients, "Client", None)
    if not hasattr(client, "attach_request") or hasattr(client, "relay_agent_guard"):
        return
    client.relay_agent_guard, begin, attach = True, client.__init__, client.attach_request

    def begin_or_end(self: Any, connection: Any) -> None:
        """Start a session in the accepting thread; if the editor has already left, only its session is affected."""
        with contextlib.suppress(Exception):
            begin(self, connection)

    def attach_after_others(self: Any, request: Any) -> Any:
        """Attach to the process as soon as the sessions of all disconnected editors have ended."""
        deadline = time.monotonic() + SESSION_END_LIMIT
        while has_leaving_editor(sessions) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
        return attach(self, request)

    client.__init__, client.attach_request = begin_or_end, attach_after_others


def answer_receipts() -> None:
    """Let debugged processes request receipts: the adapter handles a request after all output that precedes it."""
    servers = sys.modules.get("debugpy.adapter.servers")
    for name in ("Connection", "Server"):
        if handler := getattr(servers, name, None):
            setattr(handler, f"{RECEIPT}_request", lambda _self, _request: {})


def has_left(client: Any) -> bool:
    """Return whether an editor has disconnected, even if the adapter has not noticed it yet.

    One thread of the adapter closes the stream when the connection ends, and another one first handles all requests
    that precede the end.
    """
    if not client.is_connected:
        return True
    try:
        connection = select.poll()
        connection.register(client.channel.stream._reader, select.POLLRDHUP)  # noqa: SLF001 - nothing public has it
        return bool(connection.poll(0))
    except ValueError:  # the stream is closed
        return True
    except (AttributeError, OSError):  # not Linux, or another version of debugpy
        return False


def has_leaving_editor(sessions: Any) -> bool:
    """Return whether an editor has disconnected from a session that has not ended; False if that is unknown."""
    try:
        found = [each for each in list(sessions._sessions) if each.client and each.server]  # noqa: SLF001 - nothing public
        return any(each.server.is_connected and has_left(each.client) for each in found)
    except (AttributeError, RuntimeError):  # another version of debugpy, or the set has changed meanwhile
        return False


try:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # blocked in the thread that starts the adapter
    guard_sockets()
except BaseException as failure:  # noqa: BLE001 - `site` would report it, and start the adapter with open ports
    sys.stderr.write(f"relay-agent: the ports of debugpy's adapter cannot be protected: {failure}\n")
    os._exit(1)

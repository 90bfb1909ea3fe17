"""Makes debugpy's adapter serve the user of its process only, and one editor after the other; Python runs this first.

The adapter's port for debuggers needs no proof, and every user of a machine can reach 127.0.0.1. So each connection is
checked before the adapter sees it. Only `socket.accept` of the standard library is replaced for this, so no change of
debugpy can leave the ports open.

The thread that accepts editors must survive. It ends, and every later attach hangs, if an editor closes its connection
immediately (microsoft/debugpy#1308), or if another one has closed its own a moment before. So `Client.__init__`, which
runs in that thread, is replaced as well: an error in it does not end the thread. And `attach` waits until the sessions
of disconnected editors have ended, instead of being refused. With a debugpy in which these names differ, debugpy's own
functions run.
"""

import contextlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

SESSION_END_LIMIT = 5.0
"""Seconds that a new editor waits until the previous session has ended; pydevd needs milliseconds, unless C code of the
job holds the GIL."""
POLL_INTERVAL = 0.005


def guard_sockets() -> None:
    """Replace `socket.accept` in this process."""
    del os.environ["PYTHONPATH"]  # the directory is for this process only, not for its children
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from relay_core.socket_tables import OwnerUnknown, SocketTables, own_user  # noqa: PLC0415 - found only now

    del sys.path[0]
    tables, accept = SocketTables(), socket.socket.accept

    def is_own(connection: socket.socket) -> bool:
        try:
            return tables.peer_owner(connection.getsockname()[:2], connection.getpeername()[:2]) == own_user()
        except OwnerUnknown:  # this system does not show who connects
            return True
        except OSError:  # the connection was reset
            return False

    def accept_own_user(self: socket.socket) -> tuple[socket.socket, Any]:
        guard_clients()
        while True:
            connection, address = accept(self)
            if is_own(connection):
                return connection, address
            connection.close()

    socket.socket.accept = accept_own_user  # type: ignore[method-assign] # the point of this file


def guard_clients() -> None:
    """Replace two methods of `Client`, once; the adapter has imported it before it accepts connections."""
    clients, sessions = (sys.modules.get(f"debugpy.adapter.{name}") for name in ("clients", "sessions"))
    client: Any = getattr(clients, "Client", None)
    if not hasattr(client, "attach_request") or hasattr(client, "relay_agent_guard"):
        return
    client.relay_agent_guard, begin, attach = True, client.__init__, client.attach_request

    def begin_or_end(self: Any, connection: Any) -> None:
        """Start a session, in the thread that accepts; if an editor has already gone, only that one is affected."""
        with contextlib.suppress(Exception):
            begin(self, connection)

    def attach_after_others(self: Any, request: Any) -> Any:
        """Attach to the process as soon as no session ends any more."""
        deadline = time.monotonic() + SESSION_END_LIMIT
        while has_leaving_editor(sessions) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
        return attach(self, request)

    client.__init__, client.attach_request = begin_or_end, attach_after_others


def is_leaving(session: Any) -> bool:
    """Return whether the editor of a session has disconnected, but not yet its process."""
    return bool(session.client and not session.client.is_connected and session.server and session.server.is_connected)


def has_leaving_editor(sessions: Any) -> bool:
    """Return whether there is such a session; False if that is unknown."""
    try:
        return any(is_leaving(session) for session in list(sessions._sessions))  # noqa: SLF001 - nothing public lists them
    except (AttributeError, RuntimeError):  # another debugpy; the set has changed meanwhile
        return False


try:
    guard_sockets()
except BaseException as failure:  # noqa: BLE001 - `site` would report it, and start the adapter with open ports
    sys.stderr.write(f"relay-agent: the ports of debugpy's adapter cannot be protected: {failure}\n")
    os._exit(1)

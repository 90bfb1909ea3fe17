"""Restricts debugpy's adapter to connections from its own user; Python runs this before the adapter starts.

The adapter's port for debuggers requires no authentication, and every user of a machine can reach 127.0.0.1. So each
connection is checked before the adapter receives it. This also prevents another user from ending the adapter's accept
thread by connecting and closing immediately (microsoft/debugpy#1308). Only `socket.accept` of the standard library is
replaced, so a change in debugpy cannot leave the ports open.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any


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
        while True:
            connection, address = accept(self)
            if is_own(connection):
                return connection, address
            connection.close()

    socket.socket.accept = accept_own_user  # type: ignore[method-assign] # the point of this file


try:
    guard_sockets()
except BaseException as failure:  # noqa: BLE001 - `site` would report it, and start the adapter with open ports
    sys.stderr.write(f"relay-agent: the ports of debugpy's adapter cannot be protected: {failure}\n")
    os._exit(1)

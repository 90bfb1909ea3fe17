"""Determines which user is at the other end of a Unix socket."""

from __future__ import annotations

import errno
import socket
import struct

from relay_core.socket_tables import ROOT, own_user

__all__ = ["is_own_user"]

_UCRED = struct.Struct("3i")
"""Linux: struct ucred of SO_PEERCRED: pid, uid, gid (unix(7))."""
_XUCRED = struct.Struct("2I")
"""macOS: the beginning of struct xucred of LOCAL_PEERCRED: version, uid (sys/ucred.h)."""
SOL_LOCAL = 0
LOCAL_PEERCRED = 1
NOT_SHOWN = frozenset({errno.ENOPROTOOPT, errno.EOPNOTSUPP})
"""Errors of a system that never shows the peer's user, whatever the connection."""


def is_own_user(connection: socket.socket) -> bool:
    """Return whether the peer is a process of this user or of root.

    If the system never shows the peer's user, return True, because only this user can enter the socket's directory. If
    it does, but the user cannot be determined, return False.
    """
    try:
        user = _peer_user(connection)
    except OSError as error:
        return error.errno in NOT_SHOWN
    return user is None or user in {own_user(), ROOT}


def _peer_user(connection: socket.socket) -> int | None:
    if (option := getattr(socket, "SO_PEERCRED", None)) is not None:
        _pid, linux_user, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _UCRED.size))
        return int(linux_user)
    if not hasattr(socket, "AF_UNIX"):
        return None
    _version, mac_user = _XUCRED.unpack(connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, _XUCRED.size))
    return int(mac_user)

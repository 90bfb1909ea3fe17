"""Who may use a port of this machine: 127.0.0.1 is open to every user, and to web pages through DNS rebinding."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import os
import socket
from collections.abc import Callable

from relay_core.socket_tables import OwnersNotShown, SocketTables, own_user, shared_tables

ACCEPT_POLL_INTERVAL = 0.005
"""Seconds between checks of whether a connection was accepted; until then it belongs to no process."""


class PeerCheck:
    """Accepts connections only from certain users; a refusal is logged only once for each refused user or cause.

    On a system that does not show who owns a socket, all connections are accepted.

    Args:
        allowed: The uids of these users.
        log: Called with a message for each refused user and each cause of other refusals.
        tables: The source of socket owners; by default those of this program.
    """

    def __init__(
        self, allowed: frozenset[int], log: Callable[[str], object], tables: SocketTables | None = None
    ) -> None:
        self._allowed = allowed
        self._log_once = functools.cache(log)  # called for each text that it has not been called for
        self._tables = tables or shared_tables()

    def admits(self, connection: socket.socket) -> bool:
        """Return True if an allowed user owns the other end of a connection that was just accepted."""
        try:
            own, peer = connection.getsockname()[:2], connection.getpeername()[:2]
        except OSError:  # the peer has reset the connection
            return False
        try:
            owner = self._tables.peer_owner(own, peer)
        except OwnersNotShown:
            return True
        except OSError as error:
            self._log_once(f"refused a connection, because its user cannot be determined: {_cause(error)}")
            return False
        if owner is not None and owner not in self._allowed:
            self._log_once(f"refused a connection from another user of this machine (uid {owner})")
        return owner in self._allowed


async def until_accepted(connection: asyncio.WriteTransport, *, trust_unknown: bool) -> None:
    """Wait until a process of this user has accepted this outgoing connection; abort it otherwise.

    Args:
        connection: The connection. The caller limits the time.
        trust_unknown: Whether to return if this system does not show who accepted it.

    Raises:
        PermissionError: another user's program accepted it, the system does not show who did, or that cannot be
            determined at the moment.
        ConnectionResetError: the connection was closed.
    """
    try:
        while not _is_accepted(connection, trust_unknown=trust_unknown):  # noqa: ASYNC110 - no event exists
            await asyncio.sleep(ACCEPT_POLL_INTERVAL)
    except BaseException:
        connection.abort()
        raise


def _is_accepted(connection: asyncio.WriteTransport, *, trust_unknown: bool) -> bool:
    own, peer = (connection.get_extra_info(name) for name in ("sockname", "peername"))
    if connection.is_closing() or not (own and peer):
        raise ConnectionResetError("the program closed the connection")
    try:
        owner = shared_tables().peer_owner(own[:2], peer[:2])
    except OwnersNotShown:
        if not trust_unknown:
            raise PermissionError("this system does not show who accepted the connection") from None
        return True
    except OSError as error:
        raise PermissionError(f"cannot determine who accepted the connection: {_cause(error)}") from None
    if owner not in {None, own_user()}:
        raise PermissionError("another user's program accepted the connection")
    return owner is not None


def _cause(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


# Recognizes requests that a web page sends to a port of this machine under a host name of its own (DNS rebinding).
#
# A page may read the responses of its own host. If the page's host name is changed to resolve to 127.0.0.1, the browser
# sends such requests to a program on this machine, but still with that name in the `Host` header.

FOREIGN_HOST = "unknown host name: use 127.0.0.1 or localhost\n"
"""The body of the refusal."""


def is_rebound(host: str | None, address: str) -> bool:
    """Return whether a request to a loopback address names a host with a domain; no page can have any other name.

    Args:
        host: The `Host` header; None if it is missing, as in no request of a browser.
        address: The IP address of this machine that received the request.
    """
    if host is None or not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return False
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name
    return False

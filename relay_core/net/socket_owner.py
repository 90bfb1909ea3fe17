"""Checks which user owns the other end of a loopback connection, because every user can use 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relay_core.net.streams.endpoint import LocalEndpoint
from relay_core.socket_tables import OwnerUnknown, SocketTables, own_user

__all__ = ["PeerCheck", "until_accepted"]

ACCEPT_POLL_INTERVAL = 0.005
"""Seconds between checks of whether a connection was accepted; until then it belongs to no process."""


class PeerCheck:
    """Accepts connections only from certain users; a refusal is logged only once for each refused user.

    Args:
        allowed: The uids of these users.
        log: Called with a message for each refused user.
        tables: The source of socket owners.
    """

    def __init__(
        self, allowed: frozenset[int], log: Callable[[str], object], tables: SocketTables | None = None
    ) -> None:
        self._allowed = allowed
        self._log = log
        self._tables = tables or SocketTables()
        self._logged: set[int | None] = set()

    def __repr__(self) -> str:
        return f"<PeerCheck allowed={sorted(self._allowed)}>"

    def allows(self, endpoint: LocalEndpoint) -> bool:
        """Return True if an allowed user owns the connection, or the owner is unknown; otherwise abort it."""
        try:
            owner = self._tables.peer_owner(*endpoint.addresses)
        except OwnerUnknown:
            return True
        except OSError:  # the peer has reset the connection
            owner = None
        if owner in self._allowed:
            return True
        endpoint.abort()
        if owner is not None and owner not in self._logged:
            self._logged.add(owner)
            self._log(f"refused a connection from another user of this machine (uid {owner})")
        return False


async def until_accepted(endpoint: LocalEndpoint, *, trust_unknown: bool) -> None:
    """Wait until a process of this user has accepted this outgoing connection; abort it otherwise.

    Args:
        endpoint: The connection. The caller limits the time.
        trust_unknown: Whether to return if this system does not show who accepted it.

    Raises:
        PermissionError: another user's program accepted it, or the system does not show who did.
        ConnectionResetError: the connection was closed.
    """
    tables = SocketTables()
    try:
        while not _is_accepted(endpoint, tables, trust_unknown=trust_unknown):  # noqa: ASYNC110 - no event exists
            await asyncio.sleep(ACCEPT_POLL_INTERVAL)
    except BaseException:
        endpoint.abort()
        raise


def _is_accepted(endpoint: LocalEndpoint, tables: SocketTables, *, trust_unknown: bool) -> bool:
    if endpoint.is_gone:
        raise ConnectionResetError("the program closed the connection")
    try:
        owner = tables.peer_owner(*endpoint.addresses)
    except OwnerUnknown:
        if not trust_unknown:
            raise PermissionError("this system does not show who accepted the connection") from None
        return True
    if owner not in {None, own_user()}:
        raise PermissionError("another user's program accepted the connection")
    return owner is not None

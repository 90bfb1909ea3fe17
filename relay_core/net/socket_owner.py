"""A check of who connects to a port of this machine: every user can reach 127.0.0.1."""

from __future__ import annotations

from collections.abc import Callable

from relay_core.net.streams.endpoint import LocalEndpoint
from relay_core.socket_tables import OwnerUnknown, SocketTables

__all__ = ["PeerCheck"]


class PeerCheck:
    """Accepts connections of some users only; a refusal is logged once for each user.

    Args:
        allowed: The users.
        log: Called with the sentence about a refused user.
        tables: Where the owners of sockets are read.
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
        """True if the connection is one of the users', or nothing shows whose it is; otherwise abort it."""
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

"""Limits the connections that are not authenticated yet, per address and in total.

Anyone who can reach the port can open connections and send nothing. Each occupies a descriptor and, from its TLS
handshake on, about 275 KiB. Their number is therefore limited, and a new connection replaces the oldest one, which has
had the most time to authenticate. A connection leaves the budget when its token or rendezvous secret has been accepted.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

__all__ = ["Place", "Unauthenticated", "source_of"]

IPV6_SOURCE_BITS = 64
"""An IPv6 host usually has a network of this size to choose its addresses from."""


class Place:
    """The slot of one connection in a budget."""

    def __init__(self, budget: Unauthenticated, source: str, drop: Callable[[], object]) -> None:
        self.source = source
        self.drop = drop
        """Drops the connection."""
        self._budget = budget

    def leave(self) -> None:
        """Release the slot, because the connection is authenticated or closed; repeated calls do nothing."""
        self._budget.remove(self)


class Unauthenticated:
    """A budget of slots for connections.

    Args:
        total: Maximum number of connections.
        per_source: Maximum number of connections from one source.
    """

    def __init__(self, *, total: int, per_source: int) -> None:
        self._total = total
        self._per_source = per_source
        self._places: dict[str, dict[Place, None]] = {}
        """Slots of each source, the oldest first."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Unauthenticated {self._count} of {self._total}, {len(self._places)} sources>"

    def add(self, source: str, drop: Callable[[], object]) -> Place:
        """Return a slot for a new connection, after dropping an old connection if all slots are taken."""
        if len(self._places.get(source, ())) >= self._per_source:
            self._evict_from(source)
        elif self._count >= self._total:
            self.evict()
        place = Place(self, source, drop)
        self._places.setdefault(source, {})[place] = None
        self._count += 1
        return place

    def evict(self) -> bool:
        """Drop the oldest connection from the source that has the most connections; return False if there are none."""
        if not self._places:
            return False
        self._evict_from(max(self._places, key=lambda source: len(self._places[source])))
        return True

    def remove(self, place: Place) -> None:
        """Remove a slot, if it is still there."""
        places = self._places.get(place.source, {})
        if place in places:
            del places[place]
            self._count -= 1
            if not places:
                del self._places[place.source]

    def _evict_from(self, source: str) -> None:
        oldest = next(iter(self._places[source]))
        self.remove(oldest)
        oldest.drop()


def source_of(host: str) -> str:
    """Return the source of an address: the address itself for IPv4, or its network for IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_SOURCE_BITS), strict=False).network_address)

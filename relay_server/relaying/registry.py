"""Registry of hybrid connections and their listeners; independent of sockets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from relay_server.config.model import HybridConnection
from relay_server.protocol.refusals import too_many_listeners

__all__ = ["Listener", "Registry"]


class Listener(Protocol):
    """A connected listener."""

    id: str
    hybrid_connection: HybridConnection


L = TypeVar("L", bound=Listener)


class Registry(Generic[L]):
    """Finds hybrid connections by path, and keeps track of their listeners.

    Args:
        connections: The hybrid connections of the namespace.
        max_listeners: Maximum number of listeners per hybrid connection.
    """

    def __init__(self, connections: Iterable[HybridConnection], *, max_listeners: int) -> None:
        self._max_listeners = max_listeners
        self._listeners: dict[str, list[L]] = {}
        """Listeners by lower-case path, including those of hybrid connections that have been removed."""
        self.replace_connections(connections)

    def __repr__(self) -> str:
        counts = {item.path: len(self._listeners[item.path.lower()]) for item in self._connections.values()}
        return f"<Registry {counts}>"

    def replace_connections(self, connections: Iterable[HybridConnection]) -> None:
        """Replace the hybrid connections; listeners stay with the hybrid connection of the same path."""
        self._connections = {tuple(item.path.lower().split("/")): item for item in connections}
        self._depth = max(map(len, self._connections), default=0)
        for item in self._connections.values():
            self._listeners.setdefault(item.path.lower(), [])

    @property
    def connections(self) -> Iterable[HybridConnection]:
        """The configured hybrid connections."""
        return self._connections.values()

    @property
    def listeners(self) -> list[L]:
        """All listeners of all hybrid connections."""
        return [listener for listeners in self._listeners.values() for listener in listeners]

    def find(self, segments: Sequence[str]) -> HybridConnection | None:
        """Return the hybrid connection whose path is the longest prefix of these segments (case-insensitive)."""
        asked = tuple(segment.lower() for segment in segments[: self._depth])
        for length in range(len(asked), 0, -1):
            if found := self._connections.get(asked[:length]):
                return found
        return None

    def check_room(self, connection: HybridConnection, listener_id: str) -> L | None:
        """Check whether a listener can be added.

        Returns:
            None if there is room; at the limit, the oldest channel with the same id, which must be closed first.

        Raises:
            Refusal: The limit is reached, and no channel has this id.
        """
        present = self._listeners[connection.path.lower()]
        if len(present) < self._max_listeners:
            return None
        # An agent reconnects because its old channel is dead, which this relay may detect a minute later. Below the
        # limit, the old channel is kept; otherwise, any holder of a Listen key could cut off an agent whose id it
        # knows.
        for listener in present:
            if listener.id.lower() == listener_id.lower():
                return listener
        raise too_many_listeners(self._max_listeners)

    def add(self, listener: L) -> None:
        """Add a listener."""
        self._listeners[listener.hybrid_connection.path.lower()].append(listener)

    def remove(self, listener: L) -> None:
        """Remove a listener."""
        self._listeners[listener.hybrid_connection.path.lower()].remove(listener)

    def listeners_of(self, connection: HybridConnection) -> list[L]:
        """Return the listeners of a hybrid connection, the oldest channel first."""
        return list(self._listeners[connection.path.lower()])

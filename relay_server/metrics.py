"""What a relay has done and holds now; names follow Azure Monitor's where it has one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters", "Metrics"]


@dataclass
class Counters:
    """Running totals since the start."""

    listener_connections: int = 0
    sender_connections: int = 0
    rejected: int = 0
    """Senders that a listener refused."""
    refused: int = 0
    """Requests that the relay itself refused."""
    bytes_to_listeners: int = 0
    bytes_to_senders: int = 0
    """Payload of relayed pairs that have ended."""


@dataclass(frozen=True)
class Metrics:
    """A snapshot."""

    active_listeners: int
    active_senders: int
    """Relayed connections, that is."""
    pending_senders: int
    """Senders that wait for their listener."""
    connections: int
    """TCP connections of any kind."""
    listener_connections: int
    """Total since the start, like those below."""
    sender_connections: int
    rejected: int
    refused: int
    bytes_to_listeners: int
    """Payload, without framing."""
    bytes_to_senders: int
    buffered_bytes: int
    """What waits now in the relay for slow peers."""

"""Metrics of a relay, named as in Azure Monitor where it has the same metric."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters", "Metrics"]


@dataclass
class Counters:
    """Totals since the start."""

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
    """A snapshot of all metrics."""

    active_listeners: int
    active_senders: int
    """Relayed connections."""
    pending_senders: int
    """Senders waiting for a listener."""
    connections: int
    """Connections of any kind, with TLS established."""
    unproved: int
    """Connections, with or without TLS, whose token or rendezvous secret was not checked yet."""
    listener_connections: int
    """Total since the start, like the following."""
    sender_connections: int
    rejected: int
    refused: int
    bytes_to_listeners: int
    """Payload, without framing."""
    bytes_to_senders: int
    buffered_bytes: int
    """Bytes currently waiting in the relay for slow peers."""

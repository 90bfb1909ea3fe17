"""Metrics of a relay, with the names of Azure Monitor if it has the same metric."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters", "Metrics"]


SERVER_ERRORS = 500
"""The first status that is an error of the server."""


@dataclass
class Counters:
    """Totals since the start."""

    listener_connections: int = 0
    sender_connections: int = 0
    http_requests: int = 0
    """Number of HTTP requests that a listener answered."""
    rejected: int = 0
    """Number of senders that a listener rejected."""
    refused: int = 0
    """Number of requests that the relay itself refused."""
    listener_client_errors: int = 0
    """Refused requests of listeners with a status 4xx, and so on."""
    listener_server_errors: int = 0
    sender_client_errors: int = 0
    sender_server_errors: int = 0
    bytes_to_listeners: int = 0
    bytes_to_senders: int = 0
    """Payload in bytes of relayed pairs and HTTP requests that have ended."""

    def count_refusal(self, *, of_listener: bool, status: int) -> None:
        """Count a refused request to listen or to connect."""
        if of_listener and status < SERVER_ERRORS:
            self.listener_client_errors += 1
        elif of_listener:
            self.listener_server_errors += 1
        elif status < SERVER_ERRORS:
            self.sender_client_errors += 1
        else:
            self.sender_server_errors += 1


@dataclass(frozen=True)
class Metrics:
    """A snapshot of all metrics."""

    active_listeners: int
    active_senders: int
    """Number of relayed connections."""
    pending_senders: int
    """Number of senders waiting for a listener."""
    connections: int
    """Number of connections with TLS established."""
    unproved: int
    """Number of connections, with or without TLS, whose token or rendezvous secret has not been checked yet."""
    listener_connections: int
    """Total since the start, like the following fields."""
    sender_connections: int
    http_requests: int
    listener_disconnects: int
    sender_disconnects: int
    rejected: int
    refused: int
    listener_client_errors: int
    listener_server_errors: int
    sender_client_errors: int
    sender_server_errors: int
    bytes_to_listeners: int
    """Payload in bytes, without framing."""
    bytes_to_senders: int
    buffered_bytes: int
    """Bytes currently waiting in the relay for slow peers."""

"""Metrics of a relay and of each hybrid connection, under Azure Monitor's names if it has the same metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

SERVER_ERRORS = 500
"""The first status that is an error of the server."""
MAX_ENTITIES = 1000
"""Maximum number of hybrid connections with their own counters: each adds a time series to every metric, and a
configuration that changes while the relay runs may add new ones without limit."""
OTHER_ENTITIES = "(other)"
"""Stands for the hybrid connections above this limit, and for requested paths that are not configured. Otherwise,
senders could create time series by requesting random paths. A path cannot contain parentheses."""


@dataclass
class EntityMetrics:
    """What is counted for one hybrid connection, or for all of them, since the relay started."""

    listener_connections: int = 0
    sender_connections: int = 0
    listener_disconnects: int = 0
    sender_disconnects: int = 0
    http_requests: int = 0
    """Number of HTTP requests that a listener answered."""
    rejected: int = 0
    """Number of senders that a listener rejected."""
    listener_client_errors: int = 0
    """Number of requests from listeners that were refused with a 4xx status; the next three fields count the other
    kinds of refusals."""
    listener_server_errors: int = 0
    sender_client_errors: int = 0
    sender_server_errors: int = 0
    bytes_to_listeners: int = 0
    bytes_to_senders: int = 0
    """Payload bytes, without framing, of relayed pairs and HTTP requests."""
    pending_senders: int = 0
    """Number of senders that are currently waiting for a listener; this field and the next two can decrease."""
    active_listeners: int = 0
    active_senders: int = 0
    """Number of relayed connections."""

    def count_refusal(self, *, of_listener: bool, status: int) -> None:
        """Count a refused request to listen or to connect."""
        fault = "client" if status < SERVER_ERRORS else "server"
        name = f"{'listener' if of_listener else 'sender'}_{fault}_errors"
        setattr(self, name, getattr(self, name) + 1)


class EntityCounters:
    """The counters of each hybrid connection, by its path.

    Args:
        limit: Maximum number of paths with their own counters.
    """

    def __init__(self, limit: int = MAX_ENTITIES) -> None:
        self._limit = limit
        self._counters = {OTHER_ENTITIES: EntityMetrics()}

    def of(self, path: str | None) -> EntityMetrics:
        """Return the counters of a path; those of OTHER_ENTITIES for None (not configured) and above the limit."""
        is_full = len(self._counters) > self._limit
        label = OTHER_ENTITIES if path is None or (is_full and path not in self._counters) else path
        return self._counters.setdefault(label, EntityMetrics())

    def snapshot(self) -> dict[str, EntityMetrics]:
        """Return copies of all counters, by label."""
        return {label: replace(counters) for label, counters in self._counters.items()}


@dataclass
class Metrics(EntityMetrics):
    """A snapshot of all metrics of a relay; the fields of EntityMetrics are totals of all hybrid connections."""

    connections: int = 0
    """Number of connections with TLS established."""
    unauthenticated: int = 0
    """Number of connections, with or without TLS, whose token or rendezvous secret has not been checked yet."""
    refused: int = 0
    """Number of requests of any kind that the relay itself refused."""
    buffered_bytes: int = 0
    """Bytes currently waiting in the relay for slow peers."""


def total(entities: Mapping[str, EntityMetrics]) -> dict[str, int]:
    """Return the sum of each field over all hybrid connections, as arguments of `Metrics`."""
    return {field.name: sum(getattr(each, field.name) for each in entities.values()) for field in fields(EntityMetrics)}

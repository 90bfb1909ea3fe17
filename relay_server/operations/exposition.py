"""The metrics of a relay in Prometheus' text format, under Azure Monitor's names if it has the same metrics.

Azure's `ListenerConnections-Success` is called `relay_listener_connections_success_total` here; each help text names
Azure's metric. Azure's dimension `EntityName`, the path of a hybrid connection, is the label `entity`; a query sums
over it, as in `sum(relay_active_listeners)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from relay_server.metrics import EntityMetrics, Metrics

__all__ = ["CONTENT_TYPE_LATEST", "exposition"]

Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)

LABEL = "entity"
ENTITY_GAUGES = (
    ("active_listeners", "active_listeners", "ActiveListeners"),
    ("active_connections", "active_senders", "ActiveConnections: senders connected to a listener"),
    ("pending_senders", "pending_senders", "Senders that are waiting for a listener"),
)
"""Name, field of EntityMetrics, and help text."""
ENTITY_COUNTERS = (
    ("listener_connections_success", "listener_connections", "ListenerConnections-Success"),
    ("listener_connections_client_error", "listener_client_errors", "ListenerConnections-ClientError"),
    ("listener_connections_server_error", "listener_server_errors", "ListenerConnections-ServerError"),
    ("listener_disconnects", "listener_disconnects", "ListenerDisconnects"),
    ("sender_connections_success", "sender_connections", "SenderConnections-Success"),
    ("sender_connections_client_error", "sender_client_errors", "SenderConnections-ClientError"),
    ("sender_connections_server_error", "sender_server_errors", "SenderConnections-ServerError"),
    ("sender_disconnects", "sender_disconnects", "SenderDisconnects"),
    ("http_requests", "http_requests", "Senders' HTTP requests that a listener answered"),
    ("rejected_senders", "rejected", "Senders that a listener rejected"),
)
GAUGES = (
    ("open_connections", "connections", "Connections with TLS established"),
    (
        "unauthenticated_connections",
        "unauthenticated",
        "Connections whose token or rendezvous secret has not been checked yet",
    ),
    ("buffered_bytes", "buffered_bytes", "Bytes that the relay holds for slow peers"),
)
"""Name, field of Metrics, and help text; these metrics, like the number of refused requests, do not belong to a hybrid
connection."""


def exposition(metrics: Metrics, entities: Mapping[str, EntityMetrics]) -> bytes:
    """Return the text that Prometheus reads.

    Args:
        metrics: The metrics of the relay.
        entities: The metrics of each hybrid connection, by path.
    """
    registry = CollectorRegistry()
    registry.register(_Snapshot(metrics, entities))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, metrics: Metrics, entities: Mapping[str, EntityMetrics]) -> None:
        self._metrics = metrics
        self._entities = entities

    def collect(self) -> Iterator[Metric]:
        for name, field, text in ENTITY_GAUGES:
            yield self._by_entity(GaugeMetricFamily(f"relay_{name}", text, labels=[LABEL]), field)
        for name, field, text in ENTITY_COUNTERS:
            yield self._by_entity(CounterMetricFamily(f"relay_{name}", text, labels=[LABEL]), field)
        for name, field, text in GAUGES:
            yield GaugeMetricFamily(f"relay_{name}", text, value=getattr(self._metrics, field))
        refused = "Requests of any kind that the relay refused"
        yield CounterMetricFamily("relay_refused_requests", refused, value=self._metrics.refused)
        yield self._transferred()

    def _by_entity(self, family: Family, field: str) -> Family:
        for entity, metrics in self._entities.items():
            family.add_metric([entity], getattr(metrics, field))
        return family

    def _transferred(self) -> Metric:
        family = CounterMetricFamily(
            "relay_bytes_transferred", "BytesTransferred: payload without framing", labels=[LABEL, "direction"]
        )
        for entity, metrics in self._entities.items():
            family.add_metric([entity, "to_listeners"], metrics.bytes_to_listeners)
            family.add_metric([entity, "to_senders"], metrics.bytes_to_senders)
        return family

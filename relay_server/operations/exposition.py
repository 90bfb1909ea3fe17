"""The metrics of a relay in Prometheus' text format, under the names of Azure Monitor if it has the same metric.

Azure's `ListenerConnections-Success` is here `relay_listener_connections_success_total`; each help text names the
metric of Azure.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from relay_server.metrics import Metrics

__all__ = ["CONTENT_TYPE_LATEST", "exposition"]

GAUGES = (
    ("active_listeners", "active_listeners", "ActiveListeners"),
    ("active_connections", "active_senders", "ActiveConnections: senders connected to a listener"),
    ("pending_senders", "pending_senders", "Senders that wait for a listener"),
    ("open_connections", "connections", "Connections with TLS established"),
    ("unauthenticated_connections", "unproved", "Connections whose token or rendezvous has not been checked yet"),
    ("buffered_bytes", "buffered_bytes", "Bytes that wait in the relay for slow peers"),
)
"""Name, field of Metrics, and help text."""
COUNTERS = (
    ("listener_connections_success", "listener_connections", "ListenerConnections-Success"),
    ("listener_connections_client_error", "listener_client_errors", "ListenerConnections-ClientError"),
    ("listener_connections_server_error", "listener_server_errors", "ListenerConnections-ServerError"),
    ("listener_disconnects", "listener_disconnects", "ListenerDisconnects"),
    ("sender_connections_success", "sender_connections", "SenderConnections-Success"),
    ("sender_connections_client_error", "sender_client_errors", "SenderConnections-ClientError"),
    ("sender_connections_server_error", "sender_server_errors", "SenderConnections-ServerError"),
    ("sender_disconnects", "sender_disconnects", "SenderDisconnects"),
    ("http_requests", "http_requests", "HTTP requests of senders that a listener answered"),
    ("rejected_senders", "rejected", "Senders that a listener rejected"),
    ("refused_requests", "refused", "Requests of any kind that the relay refused"),
)


def exposition(metrics: Metrics) -> bytes:
    """Return the text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(metrics))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        for name, field, text in GAUGES:
            yield GaugeMetricFamily(f"relay_{name}", text, value=getattr(metrics, field))
        for name, field, text in COUNTERS:
            yield CounterMetricFamily(f"relay_{name}", text, value=getattr(metrics, field))
        transferred = CounterMetricFamily(
            "relay_bytes_transferred", "BytesTransferred: payload without framing", labels=["direction"]
        )
        transferred.add_metric(["to_listeners"], metrics.bytes_to_listeners)
        transferred.add_metric(["to_senders"], metrics.bytes_to_senders)
        yield transferred

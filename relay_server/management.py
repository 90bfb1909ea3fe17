"""The metrics of a relay in Prometheus' text format, under Azure Monitor's names if it has the same metrics.

Azure's `ListenerConnections-Success` is called `relay_listener_connections_success_total` here; each help text names
Azure's metric. Azure's dimension `EntityName`, the path of a hybrid connection, is the label `entity`; a query sums
over it, as in `sum(relay_active_listeners)`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
import json
import logging
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError, ProtocolError, RelayUnreachable
from relay_core.net.loopback import FOREIGN_HOST, is_rebound
from relay_core.program.parser import installed_version
from relay_server.config.model import ManagementSettings, RelayConfig
from relay_server.metrics import EntityMetrics, Metrics
from relay_server.protocol.http import HeadReader, RequestHead, response_head
from relay_server.protocol.refusals import Refusal
from relay_server.server import RelayServer

logger = logging.getLogger(__name__)


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
        for kind, table in ((GaugeMetricFamily, ENTITY_GAUGES), (CounterMetricFamily, ENTITY_COUNTERS)):
            for name, field, text in table:
                family = kind(f"relay_{name}", text, labels=[LABEL])
                for entity, metrics in self._entities.items():
                    family.add_metric([entity], getattr(metrics, field))
                yield family
        for name, field, text in GAUGES:
            yield GaugeMetricFamily(f"relay_{name}", text, value=getattr(self._metrics, field))
        refused = "Requests of any kind that the relay refused"
        yield CounterMetricFamily("relay_refused_requests", refused, value=self._metrics.refused)
        text = "BytesTransferred: payload without framing"
        transferred = CounterMetricFamily("relay_bytes_transferred", text, labels=[LABEL, "direction"])
        for entity, metrics in self._entities.items():
            transferred.add_metric([entity, "to_listeners"], metrics.bytes_to_listeners)
            transferred.add_metric([entity, "to_senders"], metrics.bytes_to_senders)
        yield transferred


# `relay-server status`: queries the management port of a running relay, and formats the answer.

TIMEOUT = 5.0
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - connected to, not bound
"""Where a server that is bound to all addresses can be reached from its own machine."""


def fetch_status(config: RelayConfig) -> dict[str, Any]:
    """Return the status of the relay with this configuration.

    Raises:
        ConfigurationError: The configuration has no management port.
        RelayUnreachable: Nothing answers there.
        ProtocolError: Another program answers there.
    """
    settings = config.management
    if settings is None or not settings.port:
        raise ConfigurationError(
            "the configuration has no management port", hint="add [management] with a 'port', and restart the relay"
        )
    host = ANY_ADDRESS.get(settings.bind, settings.bind)
    connection = http.client.HTTPConnection(host, settings.port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/status")
        status = json.loads(connection.getresponse().read())
    except OSError as error:
        raise RelayUnreachable(
            f"no relay answers at http://{host}:{settings.port}: {error.strerror or 'no answer in time'}",
            hint="check that relay-server is running with this configuration",
        ) from error
    except (http.client.HTTPException, ValueError):
        status = None
    finally:
        connection.close()
    if not isinstance(status, dict) or "metrics" not in status:
        raise ProtocolError(f"another program answers at http://{host}:{settings.port}")
    return status


def format_status(status: dict[str, Any]) -> str:
    """Return the most important values as text; `--json` prints all of them."""
    metrics = status["metrics"]
    state = "serving" if status["serving"] else "shutting down"
    hours, minutes = divmod(status["uptime"] // 60, 60)
    lines = [
        f"{status['address']}  {state} for {hours} h {minutes} min  version {status['version']}",
        f"connections: {metrics['connections']}",
        f"senders: {metrics['active_senders']} connected to a listener, {metrics['pending_senders']} waiting",
        f"relayed: {metrics['bytes_to_listeners']:,} bytes to listeners, {metrics['bytes_to_senders']:,} to senders",
        f"refused: {metrics['refused']}",
        *(f"  {path}  listeners: {count}" for path, count in status["hybrid_connections"].items()),
    ]
    return "\n".join(lines)


# The management port: health, metrics and status over plain HTTP, for supervisors on this machine or in this cluster.
#
# It is separate from the relay's own port, which strangers can reach. It shows metrics and the names of hybrid
# connections, but no keys, tokens or addresses of peers.
#
#     GET /healthz    200 while the relay accepts connections, 503 while it shuts down
#     GET /metrics    Prometheus' text format
#     GET /status     JSON: version, address, uptime in seconds, hybrid connections with their listeners, metrics

REQUEST_TIMEOUT = 5.0
"""Timeout in seconds for a request and its response."""
MAX_CONNECTIONS = 64
READ_BYTES = 4096
TEXT = "text/plain; charset=utf-8"


class Management:
    """Serves the management port during an `async with` block.

    Args:
        server: The relay.
        settings: Address and port.
    """

    def __init__(self, server: RelayServer, settings: ManagementSettings) -> None:
        self._server = server
        self._settings = settings
        self._started = time.monotonic()
        self._connections = 0
        self._listening: asyncio.Server

    @property
    def port(self) -> int:
        """The bound port."""
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Management:
        bind, port = self._settings.bind, self._settings.port
        try:
            self._listening = await asyncio.start_server(self._serve, bind, port)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {bind} port {port}: {error.strerror}", hint="check 'bind' and 'port' in [management]"
            ) from error
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._listening.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections += 1
        try:
            async with timeout(REQUEST_TIMEOUT):
                answer = await self._answer(reader, writer.get_extra_info("sockname")[0])
                if not writer.is_closing():
                    writer.write(answer)
                    await writer.drain()
        except (OSError, *TIMEOUT_ERRORS) as error:
            logger.debug("a request to the management port failed: %s", error)
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, address: str) -> bytes:
        try:
            head = await _read_head(reader)
        except Refusal as refusal:
            return _response(refusal.status, TEXT, b"bad request\n")
        if is_rebound(head.header("Host"), address):
            return _response(403, TEXT, FOREIGN_HOST.encode())
        if head.method not in {"GET", "HEAD"}:
            return _response(405, TEXT, b"only GET and HEAD are supported\n")
        response = self._find(head.path)
        return response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if head.method == "HEAD" else response

    def _find(self, path: str) -> bytes:
        if path == "/healthz":
            is_serving = self._server.is_serving
            return _response(200 if is_serving else 503, TEXT, b"ok\n" if is_serving else b"shutting down\n")
        if path == "/metrics":
            text = exposition(self._server.metrics(), self._server.metrics_of_entities())
            return _response(200, CONTENT_TYPE_LATEST, text)
        if path == "/status":
            return _response(200, "application/json", json.dumps(self.status()).encode() + b"\n")
        return _response(404, TEXT, b"not found: use /healthz, /metrics or /status\n")

    def status(self) -> dict[str, Any]:
        """Return what `relay-server status` shows."""
        return {
            "version": installed_version() or "unknown",
            "address": f"wss://{self._server.public_address}",
            "serving": self._server.is_serving,
            "uptime": round(time.monotonic() - self._started),
            "hybrid_connections": self._server.listener_counts(),
            "metrics": dataclasses.asdict(self._server.metrics()),
        }


async def _read_head(reader: asyncio.StreamReader) -> RequestHead:
    parser = HeadReader()
    while True:
        data = await reader.read(READ_BYTES)
        if not data:
            raise ConnectionResetError("the connection was closed before the request was complete")
        if head := parser.feed(data):
            return head


def _response(status: int, content_type: str, body: bytes) -> bytes:
    headers = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
    headers += [("Cache-Control", "no-store"), ("Connection", "close")]
    return response_head(status, HTTPStatus(status).phrase, headers) + body

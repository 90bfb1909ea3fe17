"""The management port: health, metrics and status over plain HTTP, for supervisors on this machine or in this cluster.

It is separate from the relay's own port, which strangers can reach. It shows metrics and the names of hybrid
connections, but no keys, tokens or addresses of peers.

    GET /healthz    200 while the relay accepts connections, 503 while it shuts down
    GET /metrics    Prometheus' text format
    GET /status     JSON: version, address, uptime in seconds, hybrid connections with their listeners, metrics
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import time
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError
from relay_core.net.host_header import FOREIGN_HOST, is_rebound
from relay_server.config.model import ManagementSettings
from relay_server.operations.exposition import CONTENT_TYPE_LATEST, exposition
from relay_server.protocol.http import HeadReader, RequestHead
from relay_server.protocol.refusals import Refusal
from relay_server.server import RelayServer

__all__ = ["Management"]

logger = logging.getLogger(__name__)

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
        self._listening: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The bound port."""
        assert self._listening is not None  # noqa: S101 - only used inside the block
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
        if self._listening is not None:
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
        response = self._find(head.target.partition("?")[0])
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
            "version": _version(),
            "address": f"wss://{self._server.public_address}",
            "serving": self._server.is_serving,
            "uptime": round(time.monotonic() - self._started),
            "hybrid_connections": self._server.listeners_of_connections(),
            "metrics": dataclasses.asdict(self._server.metrics()),
        }


def _version() -> str:
    try:
        return version("relay-debug")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


async def _read_head(reader: asyncio.StreamReader) -> RequestHead:
    parser = HeadReader()
    while True:
        data = await reader.read(READ_BYTES)
        if not data:
            raise ConnectionResetError("the connection was closed before the request was complete")
        if head := parser.feed(data):
            return head


def _response(status: int, content_type: str, body: bytes) -> bytes:
    head = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body

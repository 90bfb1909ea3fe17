"""Sockets, WebSockets and tasks: the only package of relay_core that does network I/O.

The public surface for Hybrid Connections is `HybridConnectionListener` (with its offers and HTTP requests), `connect`
and `http_headers`.
"""

from relay_core.net.hybrid.connector import connect
from relay_core.net.hybrid.http import HttpHandler, HttpRequest, HttpResponse, http_headers
from relay_core.net.hybrid.listener import HybridConnectionListener, Offer
from relay_core.net.websocket.connection import WebSocket

__all__ = [
    "HttpHandler",
    "HttpRequest",
    "HttpResponse",
    "HybridConnectionListener",
    "Offer",
    "WebSocket",
    "connect",
    "http_headers",
]

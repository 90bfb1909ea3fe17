"""Sockets, WebSockets and tasks: the only package of relay_core that does network I/O.

The public surface for Hybrid Connections is `HybridConnectionListener` (with its offers and HTTP requests), `connect`
and `http_headers`. These are imported when they are first used (PEP 562), because they load the WebSocket and HTTP
libraries, which takes 0.1 s. `relay_client.control.client` imports `relay_core.net.tasks` from this package, but needs
none of them, and neither does a command that queries a running client.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULES = ("hybrid.connector", "hybrid.http", "hybrid.listener", "websocket.connection")


def __getattr__(name: str) -> object:
    for module in _MODULES if name in __all__ else ():
        names = vars(importlib.import_module(f"{__name__}.{module}"))
        if name in names:
            return names[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

"""Sockets, WebSockets and tasks: the only package of relay_core that does network I/O.

The public surface for Hybrid Connections is `HybridConnectionListener` (with its offers) and `connect`.
"""

from relay_core.net.hybrid.connector import connect
from relay_core.net.hybrid.listener import HybridConnectionListener
from relay_core.net.hybrid.offer import Offer
from relay_core.net.websocket.handshake import WebSocket

__all__ = ["HybridConnectionListener", "Offer", "WebSocket", "connect"]

"""Sockets, websockets and tasks: the only package with I/O.

The public surface for Hybrid Connections is `HybridConnectionListener` (with its offers) and `connect`.
"""

from relay_core.net.connector import connect
from relay_core.net.listener import HybridConnectionListener
from relay_core.net.offer import Offer
from relay_core.net.websocket import WebSocket

__all__ = ["HybridConnectionListener", "Offer", "WebSocket", "connect"]

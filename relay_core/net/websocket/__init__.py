"""WebSockets over asyncio: the opening handshake, and the connection after it."""

"""Client connections: TCP and TLS, request heads, WebSocket frames."""

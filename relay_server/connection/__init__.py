"""Client connections: TCP and TLS, the request's head, WebSocket frames."""

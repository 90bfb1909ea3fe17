"""The control endpoint of a running relay-client: other programs of the same user ask it for its state and direct it.

docs/reference/control-socket.md has the protocol.
"""

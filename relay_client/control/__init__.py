"""The control socket of a running relay-client: other programs of the same user request its state and control it.

docs/reference/control-socket.md describes the protocol.
"""

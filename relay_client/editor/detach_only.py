"""Requests by which an editor ends a debug session. By default they only detach the debugger, and the job continues."""

from __future__ import annotations

from relay_core.dap.framing import encode
from relay_core.dap.messages import Request
from relay_core.dap.prefetch import arguments_of, parse
from relay_core.dap.splitter import MessageSplitter
from relay_core.layers.layer import EndPeer, Layer, Output, ToPeer

__all__ = ["DetachOnly", "harmless"]

_COMMANDS = (b'"disconnect"', b'"terminate"')


def harmless(request: Request) -> Request:
    """Replace a request that would terminate the job with one that does not; return any other request unchanged."""
    arguments = arguments_of(request)
    if request["command"] == "terminate":
        return {**request, "command": "disconnect", "arguments": {"terminateDebuggee": False}}
    if request["command"] == "disconnect" and arguments.get("terminateDebuggee") is True:
        return {**request, "arguments": {**arguments, "terminateDebuggee": False}}
    return request


class DetachOnly(Layer):
    """The layer of an editor that listens: its debug adapter is the local program, the job is the peer."""

    def __init__(self) -> None:
        self._from_adapter = MessageSplitter()

    def __repr__(self) -> str:
        return "<DetachOnly>"

    def receive_local(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Process bytes from the adapter."""
        passed = [self._checked(piece.raw, piece.body) for piece in self._from_adapter.feed(data)]
        to_job = b"".join(passed)
        return [ToPeer(to_job)] if to_job else []

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass on EOF, after any incomplete message from the adapter."""
        rest = self._from_adapter.end()
        return [*([ToPeer(rest)] if rest else []), EndPeer()]

    def _checked(self, raw: bytes, body: bytes) -> bytes:
        request = parse(body, "request") if any(command in body for command in _COMMANDS) else None
        changed = harmless(request) if request else None
        return raw if changed is request or changed is None else encode(changed)

"""Requests by which an editor ends a debug session. By default they only detach the debugger, and the job continues."""

from __future__ import annotations

from relay_core.dap.messages import Request
from relay_core.dap.prefetch import arguments_of
from relay_core.layers.layer import Layer, Output, ToPeer
from relay_core.layers.piece import MAX_PARSED

__all__ = ["DetachOnly", "harmless"]


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

    longest_local = MAX_PARSED

    def __repr__(self) -> str:
        return "<DetachOnly>"

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take a message of the adapter."""
        request = piece.request()
        changed = harmless(request) if request else None
        return [piece if changed is request or changed is None else ToPeer.of(changed)]

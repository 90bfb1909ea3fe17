"""Messages of the debug adapter protocol, with the fields that are read or written here.

https://microsoft.github.io/debug-adapter-protocol/specification#Base_Protocol

The types say what a well-formed message has. `relay_core.dap.prefetch.parse` checks the required fields of what comes
from a peer; bodies and arguments are as the peer has sent them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

__all__ = ["Arguments", "Body", "Event", "Message", "Request", "Response"]

Arguments = Mapping[str, object]
Body = dict[str, Any]
"""Of a response or an event. DAP has some hundred kinds, so who reads one must know which it is."""


class _RequestOptions(TypedDict, total=False):
    arguments: Arguments


class Request(_RequestOptions):
    """Of an editor, or in its place."""

    seq: int
    type: Literal["request"]
    command: str


class _ResponseOptions(TypedDict, total=False):
    seq: int
    command: str
    success: bool
    message: str
    """Why it was not a success."""
    body: Body


class Response(_ResponseOptions):
    """Of a debug adapter."""

    type: Literal["response"]
    request_seq: int


class _EventOptions(TypedDict, total=False):
    seq: int
    body: Body


class Event(_EventOptions):
    """Of a debug adapter."""

    type: Literal["event"]
    event: str


Message = Request | Response | Event

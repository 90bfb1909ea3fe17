"""Debug Adapter Protocol messages, with the fields that this project reads or writes.

https://microsoft.github.io/debug-adapter-protocol/specification#Base_Protocol

The types describe well-formed messages. `relay_core.dap.parsing` checks the required fields of messages from a
peer; it does not check bodies and arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

__all__ = ["Arguments", "Body", "Event", "Message", "Request", "Response"]

Arguments = Mapping[str, object]
Body = dict[str, Any]
"""The body of a response or an event. DAP defines about a hundred kinds; the reader must know which one it reads."""


class _RequestOptions(TypedDict, total=False):
    arguments: Arguments


class Request(_RequestOptions):
    """A request that an editor sent, or that was sent on its behalf."""

    seq: int
    type: Literal["request"]
    command: str


class _ResponseOptions(TypedDict, total=False):
    seq: int
    command: str
    success: bool
    message: str
    """Why the request failed."""
    body: Body


class Response(_ResponseOptions):
    """A debug adapter's response."""

    type: Literal["response"]
    request_seq: int


class _EventOptions(TypedDict, total=False):
    seq: int
    body: Body


class Event(_EventOptions):
    """A debug adapter's event."""

    type: Literal["event"]
    event: str


Message = Request | Response | Event

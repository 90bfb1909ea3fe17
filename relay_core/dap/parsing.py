"""The JSON of Debug Adapter Protocol messages, checked as far as this project relies on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, TypeGuard, overload

from relay_core.dap.messages import Arguments, Event, Message, Request, Response
from relay_core.errors import ProtocolError

__all__ = ["NOT_DAP", "Kind", "arguments_of", "is_message", "parse", "parse_as"]

Kind = Literal["request", "response", "event"]
NOT_DAP = "the peer does not use the Debug Adapter Protocol"
_from_json = json.JSONDecoder().decode


def parse(body: bytes) -> Message:
    """Return the message in a body; only its `type` has been checked.

    Raises:
        ProtocolError: the body is not a message.
    """
    try:
        message = _from_json(body.decode())  # `json.loads` would try other encodings
    except (ValueError, RecursionError):
        raise ProtocolError(f"{NOT_DAP}: a message is not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError(f"{NOT_DAP}: a message has no type")
    return message  # type: ignore[return-value] # `cast` would be a call for each message


@overload
def parse_as(body: bytes, kind: Literal["request"]) -> Request | None: ...
@overload
def parse_as(body: bytes, kind: Literal["response"]) -> Response | None: ...
@overload
def parse_as(body: bytes, kind: Literal["event"]) -> Event | None: ...
def parse_as(body: bytes, kind: Kind) -> Request | Response | Event | None:
    """Return the message in `body`, or None if it is of another type or lacks a required field."""
    try:
        message = parse(body)
    except ProtocolError:
        return None
    return message if is_message(message, kind) else None


@overload
def is_message(found: object, kind: Literal["request"]) -> TypeGuard[Request]: ...
@overload
def is_message(found: object, kind: Literal["response"]) -> TypeGuard[Response]: ...
@overload
def is_message(found: object, kind: Literal["event"]) -> TypeGuard[Event]: ...
@overload
def is_message(found: object, kind: Kind) -> TypeGuard[Request | Response | Event]: ...
def is_message(found: object, kind: Kind) -> bool:
    """True if decoded JSON is a message of that type with its required fields."""
    if not isinstance(found, dict) or found.get("type") != kind:
        return False
    if kind == "request":
        return isinstance(found.get("command"), str) and isinstance(found.get("seq"), int)
    return isinstance(found.get("event"), str) if kind == "event" else isinstance(found.get("request_seq"), int)


def arguments_of(request: Mapping[str, object]) -> Arguments:
    """Return the arguments of a request, empty if it has none."""
    arguments = request.get("arguments")
    return arguments if isinstance(arguments, dict) else {}

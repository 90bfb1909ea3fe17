"""Debug Adapter Protocol messages: the fields that this project reads or writes, and checks of what it relies on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypedDict, TypeGuard, overload

from relay_core.errors import ProtocolError

# Debug Adapter Protocol messages, with the fields that this project reads or writes.
#
# https://microsoft.github.io/debug-adapter-protocol/specification#Base_Protocol
#
# The types describe well-formed messages. The functions below check the required fields of messages from a peer, but no
# bodies and arguments.

FIRST_SNAPSHOT = 2**30
"""The lowest reference of a value in a snapshot, which stays valid while the process runs. debugpy counts from 1."""
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


# The JSON of Debug Adapter Protocol messages, checked as far as this project relies on it.

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
def is_message(found: object, kind: Literal["request"]) -> TypeGuard[Request]: ...
@overload
def is_message(found: object, kind: Literal["response"]) -> TypeGuard[Response]: ...
@overload
def is_message(found: object, kind: Literal["event"]) -> TypeGuard[Event]: ...
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


def response_to(request: Request, *, success: bool) -> Response:
    """Return a response without a number and a body."""
    return {"type": "response", "request_seq": request["seq"], "command": request["command"], "success": success}


def reason_of(response: Response) -> str:
    """Return why a request has failed."""
    reason = response.get("message")
    return reason if isinstance(reason, str) and reason else "no reason given"


# What debugpy reports about the exception at which a process has stopped, in its `stopped` event.
#
#     text           the type, and debugpy's note: "ValueError       (note: full exception trace is shown but ...)"
#     description    the message
#
# VS Code shows the description in place of the session's name, so a long message would hide which rank has stopped. The
# editor therefore receives the event in this form, and both forms are understood:
#
#     text           "ValueError: no"
#     description    "ValueError"

UNCAUGHT = "uncaught"
"""debugpy's filter for exceptions that no code catches."""
_NOTE = " (note: "


class StopException(NamedTuple):
    """An exception at which a process has stopped."""

    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def exception_of(body: Mapping[str, object]) -> StopException | None:
    """Return the exception in the body of a `stopped` event; None if the process has stopped for another reason."""
    if body.get("reason") != "exception":
        return None
    text, description = (each if isinstance(each, str) else "" for each in (body.get("text"), body.get("description")))
    if description and text.startswith(f"{description}: "):
        return StopException(description, text[len(description) + 2 :])
    return StopException(text.partition(_NOTE)[0].strip() or "exception", description)


def with_short_description(body: Body) -> Body:
    """Return the body of a `stopped` event, in the editor's form if it contains an exception."""
    found = exception_of(body)
    return body if found is None else {**body, "description": found.name, "text": str(found)}


def stops_only_at_uncaught(arguments: Arguments) -> bool:
    """Return whether a process stops only at uncaught exceptions after a `setExceptionBreakpoints` request."""
    names, options = arguments.get("filters"), arguments.get("filterOptions")
    chosen = [*names] if isinstance(names, list) else []
    chosen += [each.get("filterId") for each in options if isinstance(each, dict)] if isinstance(options, list) else []
    return bool(chosen) and all(each == UNCAUGHT for each in chosen)

"""Control channel messages: JSON text frames with exactly one top-level key.

Relay to listener: `accept`, `request`. Listener to relay: `renewToken`, `response`. Unknown keys are accepted, because
the service may add new ones; a known message without a required field is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from relay_core import json_values
from relay_core.errors import ProtocolError
from relay_core.hyco.http import RemoteEndpoint, Request, Response, parse_headers
from relay_core.records import parse_or_none

MAX_CONTROL_BYTES = 64 * 1024
"""Longest control message that the official clients can read (.NET's buffer, Jetty's default)."""


@dataclass(frozen=True)
class Accept:
    """The announcement of a sender: connect to `address` within 30 s to accept it, or add a status to reject it."""

    address: str = field(repr=False)
    """A single-use URL that serves as the credential and must be used unchanged. Its host differs from the
    namespace."""
    id: str
    connect_headers: Mapping[str, str] = field(repr=False)
    """The sender's request headers. They may contain cookies and must not be logged."""
    remote_endpoint: RemoteEndpoint | None = None

    def encode(self) -> str:
        """Return the message as JSON."""
        body: dict[str, Any] = {"address": self.address, "id": self.id, "connectHeaders": dict(self.connect_headers)}
        if self.remote_endpoint is not None:
            body["remoteEndpoint"] = asdict(self.remote_endpoint)
        return json.dumps({"accept": body})


@dataclass(frozen=True)
class RenewToken:
    """Replaces a listener's token before it expires."""

    token: str = field(repr=False)

    def encode(self) -> str:
        """Return the message as JSON; unlike in a URL, the token is not percent-encoded."""
        return json.dumps({"renewToken": {"token": self.token}})


def parse_server_message(text: str) -> Accept | Request | None:
    """Parse a message from relay to listener; return None for an unknown one.

    Raises:
        ProtocolError: Not JSON, not an object with one key, or a known message with an invalid field.
    """
    name, body = _parse(text)
    if name == "accept":
        return _parse_accept(body)
    if name == "request":
        return Request.parse(body)
    return None


def parse_listener_message(text: str) -> RenewToken | Response | None:
    """Parse a message from listener to relay; return None for an unknown one.

    Raises:
        ProtocolError: Not JSON, not an object with one key, or a known message with an invalid field.
    """
    name, body = _parse(text)
    if name == "response":
        return Response.parse(body)
    if name != "renewToken":
        return None
    token = json_values.text(body.get("token"))
    if not token:
        raise ProtocolError("a renewToken message has no token")
    return RenewToken(token)


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):  # json recurses: the message may be deeply nested
        raise ProtocolError("a control message is not JSON") from None
    # The only key is the type of the message, so a second one would make it ambiguous.
    if not isinstance(message, dict) or len(message) != 1:
        raise ProtocolError("a control message is not an object with one key")
    name, body = next(iter(message.items()))
    if not isinstance(body, dict):
        raise ProtocolError(f"the control message {name[:40]!r} does not contain an object")
    return name, body


def _parse_accept(body: dict[str, Any]) -> Accept:
    address = json_values.text(body.get("address"))
    # Never connect without TLS, whatever the relay sends. reject_url() appends to the query, so there must be one.
    if not address.startswith("wss://") or "?" not in address:
        raise ProtocolError("an accept message has no usable address")
    # Everything but the address is optional: a sender without readable headers can still be accepted.
    return Accept(
        address=address,
        id=json_values.text(body.get("id")),
        connect_headers=parse_headers(body.get("connectHeaders")),
        remote_endpoint=parse_or_none(RemoteEndpoint, body.get("remoteEndpoint")),
    )

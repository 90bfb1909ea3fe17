"""Control channel messages: JSON text frames with exactly one top-level key.

Relay to listener: `accept`, `request`. Listener to relay: `renewToken`, `response`. An unknown key is not an
error (the service may add some); a known one that lacks what it needs is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relay_core.errors import ProtocolError

__all__ = [
    "MAX_CONTROL_BYTES",
    "Accept",
    "RemoteEndpoint",
    "Request",
    "parse_renew_token",
    "parse_server_message",
    "renew_token",
]

MAX_CONTROL_BYTES = 64 * 1024
"""Longest control text the official clients can read (.NET's buffer, Jetty's default)."""


@dataclass(frozen=True)
class RemoteEndpoint:
    """Where the sender came from, as the relay saw it."""

    address: str
    port: int


@dataclass(frozen=True)
class Accept:
    """A sender waits; dial `address` within 30 s to meet it, or add a status to refuse it."""

    address: str = field(repr=False)
    """Use verbatim. Single use, on another host than the namespace, and itself the credential."""
    id: str
    connect_headers: Mapping[str, str] = field(repr=False)
    """The sender's headers; may carry its cookies, so never logged."""
    remote_endpoint: RemoteEndpoint | None = None

    def header(self, name: str) -> str | None:
        """Return the sender's header `name`, in any case, or None."""
        wanted = name.lower()
        return next((value for key, value in self.connect_headers.items() if key.lower() == wanted), None)

    def encode(self) -> str:
        """Return the text frame for the listener."""
        body: dict[str, Any] = {
            "address": self.address,
            "id": self.id,
            "connectHeaders": dict(self.connect_headers),
        }
        if self.remote_endpoint is not None:
            body["remoteEndpoint"] = {"address": self.remote_endpoint.address, "port": self.remote_endpoint.port}
        return json.dumps({"accept": body})


@dataclass(frozen=True)
class Request:
    """An HTTP request for this listener. HTTP relaying is not served by our listener: it is only recognised."""

    id: str | None
    """None in the short form, which only says where to fetch the request."""
    has_body: bool
    """Whether one binary message with the body follows on the control channel."""


def parse_server_message(text: str) -> Accept | Request | None:
    """Read what a relay sends to a listener; None for a message this library does not know.

    Raises:
        ProtocolError: not JSON, not an object with one key, or an `accept` that lacks its address.
    """
    name, body = _parse(text)
    if name == "accept":
        return _parse_accept(body)
    if name == "request":
        return Request(id=_text(body.get("id")), has_body=body.get("body") is True)
    return None


def renew_token(token: str) -> str:
    """Return the message that extends a listener's life; the token is not percent-encoded again."""
    return json.dumps({"renewToken": {"token": token}})


def parse_renew_token(text: str) -> str | None:
    """Read what a listener sends to a relay; None if it is no `renewToken`.

    Raises:
        ProtocolError: not JSON, not an object with one key, or a `renewToken` without a token.
    """
    name, body = _parse(text)
    if name != "renewToken":
        return None
    token = _text(body.get("token"))
    if not token:
        raise ProtocolError("a renewToken message has no token")
    return token


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("a control message is no JSON") from None
    if not isinstance(message, dict) or len(message) != 1:
        raise ProtocolError("a control message is no object with one key")
    name, body = next(iter(message.items()))
    if not isinstance(body, dict):
        raise ProtocolError(f"the control message '{name[:40]}' has no object inside")
    return name, body


def _parse_accept(body: dict[str, Any]) -> Accept:
    address = _text(body.get("address"))
    if not address or not address.startswith("wss://") or "?" not in address:
        raise ProtocolError("an accept message has no usable address")
    headers = body.get("connectHeaders")
    pairs = headers.items() if isinstance(headers, dict) else ()
    return Accept(
        address=address,
        id=_text(body.get("id")) or "",
        connect_headers={str(key): str(value) for key, value in pairs},
        remote_endpoint=_parse_remote(body.get("remoteEndpoint")),
    )


def _parse_remote(value: Any) -> RemoteEndpoint | None:
    if not isinstance(value, dict):
        return None
    address, port = value.get("address"), value.get("port")
    return RemoteEndpoint(address, port) if isinstance(address, str) and isinstance(port, int) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

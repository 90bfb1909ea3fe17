"""Relayed HTTP requests and responses as messages between relay and listener, and the headers that are forwarded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from relay_core import json_values
from relay_core.errors import ProtocolError
from relay_core.records import Wire, parse_or_none


@dataclass(frozen=True)
class RemoteEndpoint:
    """The sender's network address as seen by the relay; an invalid one is read as None."""

    address: Annotated[str, Wire(is_required=True)]
    port: Annotated[int, Wire(is_required=True)]


# Rules for HTTP headers that a relay forwards.
#
# Both ends of a relayed request receive headers as strings from a peer. Without these checks, a line break in a value
# would add headers or a second message, and a forwarded framing header would let two hops disagree about a body's
# length.

HOP_BY_HOP = frozenset(
    {
        "close",
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that concern one connection (RFC 9110, 7.6.1), or the length of a body, which each hop determines itself."""
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_INVALID_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def check_headers(headers: Mapping[str, str]) -> None:
    """Check the syntax of names and values (RFC 9110, 5.1 and 5.5).

    Raises:
        ProtocolError: A name is not a token, or a value contains a control character.
    """
    for name, value in headers.items():
        # Neither appears in the error: a value may be a secret, and either may contain control characters.
        if not _NAME.fullmatch(name):
            raise ProtocolError("an HTTP header has an invalid name")
        if _INVALID_IN_VALUE.search(value):
            raise ProtocolError("an HTTP header value contains a control character")


def find_header(headers: Mapping[str, str], name: str) -> str | None:
    """Return the header `name` (case-insensitive), or None."""
    wanted = name.lower()
    return next((value for key, value in headers.items() if key.lower() == wanted), None)


def forwardable(headers: Mapping[str, str], *, without: Iterable[str] = ()) -> dict[str, str]:
    """Return the headers that concern both ends.

    Args:
        headers: As received.
        without: Further names to leave out, in lower case.
    """
    # RFC 9110, 7.6.1: the Connection header names further headers that concern only one connection.
    named = (value for name, value in headers.items() if name.lower() == "connection")
    dropped = {item.strip().lower() for value in named for item in value.split(",")}
    dropped |= HOP_BY_HOP.union(without)
    return {name: value for name, value in headers.items() if name.lower() not in dropped}


# Messages of relayed HTTP requests: `request` from relay to listener, `response` from listener to relay.
#
# If `body` is true, the next message on the same WebSocket is binary and contains the body; it may be fragmented.

MAX_CONTROL_BODY = 64 * 1024
"""Largest body on a control channel, in both directions; a larger one uses a rendezvous."""


@dataclass(frozen=True)
class Request:
    """An HTTP request for the listener.

    In the short form, which has only the address, the listener must connect to the address to receive the request.
    """

    address: str = field(repr=False)
    """A single-use URL that serves as the credential and must be used unchanged."""
    id: str = ""
    method: str | None = None
    """None in the short form."""
    target: str = field(default="/", repr=False)
    """The decoded path, and the query, which is not decoded."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The sender's headers, which may contain cookies and must not be logged."""
    has_body: bool = False
    remote_endpoint: RemoteEndpoint | None = None

    def encode(self) -> str:
        """Return the message as JSON; without a method, in the short form."""
        body: dict[str, Any] = {"address": self.address}
        if self.method is not None:
            body |= {"id": self.id, "requestTarget": self.target, "method": self.method}
            body |= {"requestHeaders": dict(self.headers), "body": self.has_body}
            if self.remote_endpoint is not None:
                body["remoteEndpoint"] = asdict(self.remote_endpoint)
        return json.dumps({"request": body})

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Request:
        """Parse the content of a `request` message.

        Raises:
            ProtocolError: The address is unusable, or a field has the wrong type.
        """
        # On a rendezvous, the relay may omit the address, because the listener has used it.
        address, method, identity = body.get("address", ""), body.get("method"), body.get("id", "")
        if not isinstance(address, str) or (address and not (address.startswith("wss://") and "?" in address)):
            raise ProtocolError("a request message has no usable address")
        if method is None:
            return cls(address=address)
        target = body.get("requestTarget", "/")
        if not (isinstance(method, str) and isinstance(identity, str) and isinstance(target, str)):
            raise ProtocolError("a request message has a field of the wrong type")
        if not target.startswith("/"):  # appended to an address such as http://127.0.0.1, it could change the host
            raise ProtocolError("the target of a request message is not a path")
        return cls(
            address=address,
            id=identity,
            method=method,
            target=target,
            headers=parse_headers(body.get("requestHeaders")),
            has_body=body.get("body") is True,
            remote_endpoint=parse_or_none(RemoteEndpoint, body.get("remoteEndpoint")),
        )


@dataclass(frozen=True)
class Response:
    """A listener's answer to a request."""

    request_id: str
    status: int
    """0 if the listener sent no valid status."""
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    has_body: bool = False

    def encode(self) -> str:
        """Return the message as JSON; the body, if there is one, is the next message."""
        body = {"requestId": self.request_id, "statusCode": self.status, "statusDescription": self.reason}
        return json.dumps({"response": body | {"responseHeaders": dict(self.headers), "body": self.has_body}})

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Response:
        """Parse the content of a `response` message.

        Raises:
            ProtocolError: The request id is missing.
        """
        identity = json_values.text(body.get("requestId"))
        if not identity:
            raise ProtocolError("a response message has no requestId")
        return cls(
            request_id=identity,
            status=_status(body.get("statusCode")),
            reason=json_values.text(body.get("statusDescription")),
            headers=parse_headers(body.get("responseHeaders")),
            has_body=body.get("body") is True,
        )

    def check(self) -> None:
        """Check the parts of the response that would become the head of an HTTP message.

        Raises:
            ProtocolError: The status or a header is invalid.
        """
        # Separate from `parse`, because an application's mistake concerns one request and not the control channel.
        if not 200 <= self.status <= 999:
            raise ProtocolError("a response message has no valid status (200 to 999)")
        check_headers(self.headers)


def has_no_body(method: str, status: int) -> bool:
    """Return True if a response never has a body (RFC 9110, 6.4.1), whatever its headers contain."""
    return method == "HEAD" or status in {204, 304}


def _status(value: Any) -> int:
    # Microsoft's example has a string, its clients send a number. A status below 200 announces a later response, which
    # the protocol has no message for.
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) == 3 and text >= "200" else 0


def parse_headers(value: Any) -> dict[str, str]:
    """Return the headers in a message; none if the value is not an object."""
    return {str(name): str(text) for name, text in json_values.mapping(value).items()}

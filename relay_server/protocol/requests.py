"""Parsed requests, sans-IO: those under `/$hc/`, and plain HTTP requests that are relayed."""

from __future__ import annotations

import re
import time
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qsl, unquote

from relay_core.hyco.address import (
    TOKEN_HEADER,
    parse_parameters,
    strip_parameters,
)
from relay_core.hyco.http import RemoteEndpoint, Request, forwardable
from relay_core.hyco.messages import MAX_CONTROL_BYTES, Accept
from relay_server.protocol.http import RequestHead
from relay_server.protocol.refusals import bad_request, too_large

# Tracking ids, which consist of a GUID and the gateways that a request has passed, and the suffix of error texts.
#
# 7b17ae72-fddb-4c9b-a8f9-94c2654aa0fe_G0 Endpoint does not exist. TrackingId:7b17..._G0, SystemTracker:sb://ns/hc,
# Timestamp:2025-04-24T11:08:15

_ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_G\d{1,6}){0,8}", re.IGNORECASE)


def new_guid() -> str:
    """Return a random GUID."""
    return str(uuid.uuid4())


def guid_of(text: str | None) -> str | None:
    """Return the GUID of a tracking id, or None if the text is not one."""
    # The case is preserved, because clients compare the id with the one that they sent.
    match = _ID.fullmatch(text or "")
    return match.group(1) if match else None


def tracking_id(given: str | None) -> str:
    """Return the tracking id of a request: the client's id, or a new one if that is not a GUID, plus this gateway."""
    return f"{given if guid_of(given) else new_guid()}_G0"


def error_phrase(message: str, *, tracking: str, system: str, now: float) -> str:
    """Return the reason phrase of an error response of the relay itself.

    Args:
        message: One sentence without a full stop.
        tracking: The request's tracking id.
        system: The requested resource, e.g. `sb://localhost/myhc`.
        now: Unix seconds.
    """
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    return f"{message}. TrackingId:{tracking}, SystemTracker:{system}, Timestamp:{stamp}"


SECRET_PARAMETER = "sb-hc-secret"  # noqa: S105 - a parameter's name
"""The parameter for the secret that authenticates a listener's accept request; Azure has no such parameter. The prefix
makes clients treat it as part of the protocol. The value is hex, which needs no escaping."""
_PREFIX = "$hc"
_ACTIONS = frozenset({"listen", "connect", "accept", "request"})
_ORIGIN = re.compile(r"https?://[^/]*", re.IGNORECASE)
_KEPT_ENCODED = re.compile(r"%(?:[01][0-9a-f]|7f|23|3f)", re.IGNORECASE)
"""Control characters, `#` and `?`: decoded, they would change what the rest of a request target means."""


def is_hybrid(head: RequestHead) -> bool:
    """Return True if the request's path starts with `/$hc/` (case-insensitive)."""
    start = head.path.split("/", 2)
    return len(start) == 3 and not start[0] and unquote(start[1]).lower() == _PREFIX


@dataclass(frozen=True)
class RelayRequest(ABC):
    """What all requests have in common."""

    head: RequestHead
    raw_path: str
    """The path, as received, that begins with the hybrid connection's name."""

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The protocol's own parameters, with lower-case names."""
        return parse_parameters(self.head.query)

    @cached_property
    def tracking(self) -> str:
        """`GUID_G0`."""
        return tracking_id(self.parameters.get("sb-hc-id"))

    @property
    def segments(self) -> list[str]:
        """The segments of the decoded path: the hybrid connection's name, then the application's part."""
        return [unquote(segment) for segment in self.raw_path.split("/")]

    @property
    def path(self) -> str:
        """The decoded path as one string."""
        return "/".join(self.segments)

    @property
    @abstractmethod
    def token(self) -> str | None:
        """The token, or None; where it may be located depends on the kind of request."""

    def listener_ids(self, header: str) -> frozenset[str]:
        """Return the ids in a header that selects listeners, in lower case; empty without the header."""
        return frozenset(item.strip().lower() for item in (self.head.header(header) or "").split(",") if item.strip())

    def address(self, action: str, *, public: str, identity: str, secret: str) -> str:
        """Return the address at which a listener accepts this request; `accept_message` describes the arguments."""
        query = strip_parameters(self.head.query)
        own = f"sb-hc-action={action}&sb-hc-id={identity}&{SECRET_PARAMETER}={secret}"
        return f"wss://{public}/$hc/{self.raw_path}?{query}{'&' if query else ''}{own}"


@dataclass(frozen=True)
class HybridRequest(RelayRequest):
    """A request under `/$hc/`, which opens a WebSocket."""

    @classmethod
    def parse(cls, head: RequestHead) -> HybridRequest:
        """Parse a request for which `is_hybrid` is True."""
        return cls(head, head.path.split("/", 2)[2])

    @property
    def action(self) -> str:
        """The requested action: `listen`, `connect`, `accept` or `request`.

        Raises:
            Refusal: 400, the action is unknown.
        """
        # Official clients rely on the default.
        action = self.parameters.get("sb-hc-action", "connect").lower()
        if action not in _ACTIONS:
            raise bad_request("The sb-hc-action is unknown")
        return action

    @property
    def token(self) -> str | None:
        """The token; the header takes precedence over the parameter."""
        return self.head.header(TOKEN_HEADER) or self.parameters.get("sb-hc-token")

    @property
    def secret(self) -> str:
        """The secret in an accept request; "" without one."""
        return self.parameters.get(SECRET_PARAMETER, "")

    def rejection(self) -> tuple[int, str] | None:
        """Return status and text for the sender if this accept request rejects the sender, else None.

        Raises:
            Refusal: 400, the status is invalid.
        """
        # hyco-websocket sends the names without the prefix sb-hc-. Such names are accepted only after the address from
        # the accept message, because that address contains the sender's own parameters, which may have any name.
        after_address = self.head.query.rpartition(f"{SECRET_PARAMETER}={self.secret}")[2]
        appended = dict(parse_qsl(after_address, keep_blank_values=True))
        status = self.parameters.get("sb-hc-statuscode", appended.get("statusCode"))
        if status is None:
            return None
        if not (status.isascii() and status.isdigit() and len(status) == 3 and status[0] != "0"):
            raise bad_request("The sb-hc-statusCode must be an integer from 100 to 999")
        reason = self.parameters.get("sb-hc-statusdescription", appended.get("statusDescription", ""))
        return int(status), reason

    def accept_message(self, *, public: str, identity: str, secret: str, remote: tuple[str, int]) -> str:
        """Return the `accept` message that announces this sender to a listener.

        Args:
            public: `host:port` to which the listener connects.
            identity: The rendezvous id.
            secret: Authenticates the listener's accept request.
            remote: The sender's address and port.

        Raises:
            Refusal: 431, the sender's headers do not fit into a control message.
        """
        headers = self.head.joined_headers()
        message = Accept(
            address=self.address("accept", public=public, identity=identity, secret=secret),
            id=identity,
            # Without the token, which is the sender's credential and of no use to the listener.
            connect_headers={name: value for name, value in headers.items() if name.lower() != TOKEN_HEADER.lower()},
            remote_endpoint=RemoteEndpoint(*remote),
        ).encode()
        if len(message) > MAX_CONTROL_BYTES:
            raise too_large(MAX_CONTROL_BYTES)
        return message


@dataclass(frozen=True)
class HttpRequest(RelayRequest):
    """An HTTP request for a listener's application."""

    @classmethod
    def parse(cls, head: RequestHead) -> HttpRequest:
        """Parse a request for which `is_hybrid` is False.

        Raises:
            Refusal: 400, a request of this kind is not relayed.
        """
        if head.method == "CONNECT":
            raise bad_request("The method CONNECT is not relayed")
        path = _ORIGIN.sub("", head.path)  # RFC 9112, 3.2.2: a server must accept the absolute form, too
        return cls(head, path.removeprefix("/"))

    @property
    def token(self) -> str | None:
        """The token; in HTTP requests, the parameter takes precedence over the header."""
        return self.parameters.get("sb-hc-token") or self.head.header(TOKEN_HEADER) or self.head.header("Authorization")

    @property
    def target(self) -> str:
        """The request target for the listener: the path decoded, the query filtered but not decoded, as in Azure."""
        kept = _KEPT_ENCODED.sub(lambda match: "%25" + match.group()[1:], self.raw_path)
        query = strip_parameters(self.head.query)
        return f"/{unquote(kept)}{'?' if query else ''}{query}"

    def message(
        self, *, address: str, identity: str, host: str, remote: tuple[str, int], has_body: bool, needs_token: bool
    ) -> str:
        """Return the full `request` message.

        Args:
            address: The rendezvous address.
            identity: The rendezvous id, which the response must repeat.
            host: The namespace, for the Via header.
            remote: The sender's address and port.
            has_body: Whether a message with the body follows.
            needs_token: Whether the hybrid connection requires a token from senders.

        Raises:
            Refusal: 431, the sender's headers do not fit into a control message.
        """
        dropped = {TOKEN_HEADER.lower(), "expect"}
        # An application's own Authorization header is forwarded; one that was used as the relay's token is not.
        if needs_token and not (self.parameters.get("sb-hc-token") or self.head.header(TOKEN_HEADER)):
            dropped.add("authorization")
        headers = forwardable(self.head.joined_headers(", "), without={*dropped, "via"})
        via = self.head.header("Via")
        message = Request(
            address=address,
            id=identity,
            method=self.head.method,
            target=self.target,
            headers=headers | {"Via": f"{via}, 1.1 {host}" if via else f"1.1 {host}"},
            has_body=has_body,
            remote_endpoint=RemoteEndpoint(*remote),
        ).encode()
        if len(message) > MAX_CONTROL_BYTES:
            raise too_large(MAX_CONTROL_BYTES)
        return message

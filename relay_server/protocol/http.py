"""The relay's HTTP/1.1, sans-IO: parsing of request heads, and encoding of responses with any reason phrase.

h11 parses requests. Responses are encoded here, because a relay may delay a response by up to 30 s and then send any
status with any text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass, field
from email.utils import formatdate

import h11

from relay_core.grouping import by_key
from relay_server.protocol.refusals import Refusal, bad_request, too_large

MAX_HEAD_BYTES = 32 * 1024
"""Maximum size of the request line and all headers: Azure's limit for header metadata, with room for any token in a
URL."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MAX_REASON_CHARS = 1024
"""Maximum number of characters in a reason phrase; some clients limit the status line to 8 KiB."""
_WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\xff]+")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_BODILESS = frozenset({204, 304})


@dataclass(frozen=True)
class RequestHead:
    """A request without its body."""

    method: str
    target: str = field(repr=False)
    """Path and query, as received."""
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    """In order, with names as received and values decoded as latin-1."""
    content_length: int | None = 0
    """Length of the body; None if it is chunked."""
    http_version: str = "1.1"

    @property
    def has_body(self) -> bool:
        """True if a body follows; a chunked one may be empty."""
        return self.content_length != 0

    @property
    def keeps_alive(self) -> bool:
        """True if the client may send another request on the same connection."""
        return self.http_version == "1.1" and "close" not in _tokens(self.header("Connection"))

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None; repeated headers are joined with commas (RFC 9110, 5.3)."""
        wanted = name.lower()
        values = [value for key, value in self.headers if key.lower() == wanted]
        return ",".join(values) if values else None

    def joined_headers(self, separator: str = ",") -> dict[str, str]:
        """Return all headers; repeated ones are joined, under the name that was received first."""
        same = by_key((name.lower(), (name, value)) for name, value in self.headers)
        return {found[0][0]: separator.join(value for _, value in found) for found in same.values()}

    @property
    def path(self) -> str:
        """The target's path, still percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The target's query, still percent-encoded."""
        return self.target.partition("?")[2]

    def check_upgrade(self) -> str:
        """Check the WebSocket handshake (RFC 6455, 4.2.1) and return the value of Sec-WebSocket-Accept.

        Raises:
            Refusal: 400, the request is not a valid WebSocket handshake.
        """
        if self.method != "GET" or self.has_body or "websocket" not in _tokens(self.header("Upgrade")):
            raise bad_request("A WebSocket upgrade is expected here")
        if "upgrade" not in _tokens(self.header("Connection")):
            raise bad_request("The Connection header does not request an upgrade")
        if (self.header("Sec-WebSocket-Version") or "").strip() != "13":
            raise bad_request("The WebSocket version must be 13")
        key = (self.header("Sec-WebSocket-Key") or "").strip()
        try:
            length = len(base64.b64decode(key, validate=True))
        except (binascii.Error, ValueError):
            length = 0
        if length != 16:
            raise bad_request("The Sec-WebSocket-Key is not 16 base64-encoded bytes")
        return base64.b64encode(hashlib.sha1(key.encode() + _WEBSOCKET_GUID, usedforsecurity=False).digest()).decode()


def _tokens(value: str | None) -> set[str]:
    return {item.strip().lower() for item in (value or "").split(",")}


class HeadReader:
    """Parses a request: its head, then either its body or, after an upgrade, nothing."""

    def __init__(self) -> None:
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._received = bytearray()
        """The head, and what has arrived with it."""

    def feed(self, data: bytes) -> RequestHead | None:
        """Process received bytes; return the head once it is complete.

        Raises:
            Refusal: 400 or 431.
        """
        self._received += data
        try:
            self._parser.receive_data(data)
            event = self._parser.next_event()
        except h11.RemoteProtocolError as error:
            raise (too_large(MAX_HEAD_BYTES) if error.error_status_hint == 431 else _bad_http()) from None
        if isinstance(event, h11.Request):
            # The parser accepts a bare LF; a proxy in front of the relay may see another header, or another request.
            if _BARE_LF.search(self._received, 0, len(self._received) - len(self.trailing())):
                raise _bad_http()
            self._received.clear()
            return self._head(event)
        if event is h11.NEED_DATA and len(self._received) <= MAX_HEAD_BYTES:
            return None
        raise too_large(MAX_HEAD_BYTES) if event is h11.NEED_DATA else _bad_http()

    def trailing(self) -> bytes:
        """Return the bytes received after the head, or after the body if that was read."""
        return self._parser.trailing_data[0]

    def feed_body(self, data: bytes) -> tuple[bytes, bool]:
        """Process received bytes of the body; return its decoded part, and True if it is complete.

        Raises:
            Refusal: 400.
        """
        parts: list[bytes] = []
        try:
            if data:  # an empty argument would mean the end of the connection
                self._parser.receive_data(data)
            while isinstance(event := self._parser.next_event(), h11.Data):
                parts.append(bytes(event.data))
        except h11.RemoteProtocolError:
            raise bad_request("The request body is malformed") from None
        return b"".join(parts), isinstance(event, h11.EndOfMessage)

    def _head(self, request: h11.Request) -> RequestHead:
        headers = tuple(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw_items()
        )
        size = len(request.target) + sum(len(name) + len(value) + 4 for name, value in headers)
        if size > MAX_HEAD_BYTES:  # the parser's own limit does not apply to a head that arrives in one piece
            raise too_large(MAX_HEAD_BYTES)
        names = {name.lower(): value for name, value in headers}
        chunked, length = "transfer-encoding" in names, names.get("content-length", "0")
        # RFC 9112, 6.1: with both, two parties may disagree about where the next request begins.
        if chunked and "content-length" in names:
            raise bad_request("The request has both a Content-Length and a Transfer-Encoding")
        return RequestHead(
            method=request.method.decode("ascii"),
            target=request.target.decode("latin-1"),
            headers=headers,
            content_length=None if chunked else int(length),
            http_version=request.http_version.decode("ascii"),
        )


def _bad_http() -> Refusal:
    return bad_request("The request is not HTTP/1.1")


def switching_protocols(accept: str, *, tracking: str, subprotocol: str | None, extensions: str | None) -> bytes:
    """Return the 101 response that starts a WebSocket.

    Args:
        accept: The value of Sec-WebSocket-Accept.
        tracking: The request's tracking id.
        subprotocol: The selected subprotocol.
        extensions: The negotiated extensions.
    """
    headers = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)]
    if subprotocol:
        headers.append(("Sec-WebSocket-Protocol", subprotocol))
    if extensions:
        headers.append(("Sec-WebSocket-Extensions", extensions))
    return response_head(101, "Switching Protocols", [*headers, ("TrackingId", tracking)])


def error_answer(refusal: Refusal, phrase: str, *, tracking: str) -> bytes:
    """Return an error response of the relay itself, with its text as the reason phrase and in a JSON body."""
    body = json.dumps({"error": {"code": refusal.code, "message": phrase}}).encode()
    headers = [("TrackingId", tracking), ("Content-Type", "application/json; charset=utf-8")]
    headers += [("Content-Length", str(len(body))), ("Connection", "close")]
    return response_head(refusal.status, phrase, headers) + body


def plain_answer(status: int, reason: str, *, tracking: str) -> bytes:
    """Return a response without a body, whose status and text may be a listener's."""
    headers = [("TrackingId", tracking), ("Connection", "close")]
    if status >= 200 and status not in _BODILESS:
        headers.append(("Content-Length", "0"))
    return response_head(status, reason, headers)


def response_head(status: int, reason: str, headers: list[tuple[str, str]]) -> bytes:
    """Return the head of a response, such as a listener's; names and values must have been checked."""
    # A listener chooses this text: without CR and LF it cannot add headers or a second response.
    phrase = _UNPRINTABLE.sub(" ", reason)[:MAX_REASON_CHARS].strip()
    if not any(name.lower() == "date" for name, _ in headers):  # a listener's response may have one of its own
        headers = [*headers, ("Date", formatdate(usegmt=True))]  # RFC 9110, 6.6.1
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers), "", ""]
    # Values in requests were decoded as latin-1, so an echoed value gets its original bytes; a listener's text may not
    # fit.
    return b"\r\n".join(_encode(line) for line in lines)


def _encode(line: str) -> bytes:
    try:
        return line.encode("latin-1")
    except UnicodeEncodeError:
        return line.encode("utf-8", "replace")

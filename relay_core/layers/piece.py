"""Consecutive bytes in one direction of a connection, cut at DAP messages, which are parsed once for all layers."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Generic, TypeVar

from relay_core.dap import framing, messages
from relay_core.dap.framing import HEADER_START, find_body
from relay_core.dap.messages import Event, Message, Request, Response
from relay_core.errors import ProtocolError

MAX_PARSED = 256 * 1024
"""Bytes of JSON; a longer message is parsed only for layers that need its content."""
_HEAD = re.compile(
    rb'\s*\{\s*"seq"\s*:\s*([0-9]{1,18})\s*,\s*"type"\s*:\s*"'
    rb'(?:(event)"\s*,\s*"event"'
    rb'|(response)"\s*,\s*"request_seq"\s*:\s*([0-9]{1,18})\s*,\s*"success"\s*:\s*(?:true|false)\s*,\s*"command")'
    rb'\s*:\s*"([A-Za-z.]{1,60})"'
)
"""The first fields of an event or a response, as debugpy's adapter writes them; if they match, the rest need not be
parsed."""


_INVALID: dict[str, object] = {}
"""Used in place of the message if the body is not a message."""


class Kind(enum.Enum):
    """The kind of a piece. A message can be inserted only after pieces of the first three kinds."""

    PLAIN = "bytes that were not cut into messages"
    MESSAGE = "a whole message with its header"
    LAST_PART = "the end of a message that is passed on in parts"
    PART = "another part of such a message"
    FOREIGN = "bytes of a stream that was never DAP"
    BROKEN = "bytes of a stream that is no longer DAP"
    CUT = "the incomplete message at the end of a stream"


_MESSAGE = Kind.MESSAGE  # on Python 3.11, each access to a member of an enumeration calls a function
_COMPLETE = frozenset({Kind.PLAIN, Kind.MESSAGE, Kind.LAST_PART})


PieceType = TypeVar("PieceType", bound="Piece")


class Piece:
    """Bytes that are passed on unchanged. A piece equals another piece of the same class with the same bytes.

    Args:
        data: The bytes.
        kind: What the bytes are.
        start: Offset of the JSON in a message.
        message: The parsed JSON, if the caller has it.
    """

    __slots__ = ("_message", "_start", "data", "is_message", "kind", "name", "request_seq", "seq", "type")

    def __init__(
        self, data: bytes, kind: Kind = Kind.PLAIN, start: int = 0, message: Mapping[str, object] | None = None
    ) -> None:
        self.data = data
        self.kind = kind
        self.is_message = kind is _MESSAGE
        """True if this is a whole message."""
        # The next four attributes identify the message. They keep these values if the piece is not a message, or if
        # the message lacks a required field, or is long and begins in an unusual way.
        self.type = ""
        """`request`, `response` or `event`."""
        self.name = ""
        """The command or the event."""
        self.seq = 0
        """The number of the message."""
        self.request_seq = 0
        """The number of the request that a response answers."""
        self._start = start
        self._message = message
        if message is not None:
            self._identify(message)
        elif self.is_message:
            self._read_head()

    @classmethod
    def of(cls: type[PieceType], message: Message) -> PieceType:  # noqa: PYI019 - `Self` needs Python 3.11
        """Return a message that a layer adds to the stream."""
        data = framing.encode(message)
        return cls(data, _MESSAGE, framing.body_start(data), message)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Piece) and self.data == other.data

    __hash__ = None  # type: ignore[assignment] # as for every mutable value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r})"

    @property
    def header(self) -> bytes:
        """The bytes before the JSON of a message."""
        return self.data[: self._start]

    @property
    def body(self) -> bytes:
        """The JSON of a message of at most `MAX_PARSED` bytes, else b""."""
        return self.data[self._start :] if self.is_message and len(self.data) - self._start <= MAX_PARSED else b""

    @property
    def whole_body(self) -> bytes:
        """The JSON of a message of any length, else b""."""
        return self.data[self._start :] if self.is_message else b""

    @property
    def can_be_followed(self) -> bool:
        """True if a message can be inserted after this piece."""
        return self.is_message or self.kind in _COMPLETE

    @property
    def is_foreign(self) -> bool:
        """True if no part of the stream was DAP."""
        return not self.is_message and self.kind is Kind.FOREIGN

    def request(self) -> Request | None:
        """Return the message if it is a request of at most `MAX_PARSED` bytes; it must not be changed."""
        return self._parsed("request")  # type: ignore[return-value] # `cast` would be a call for each layer, as below

    def response(self, *, any_length: bool = False) -> Response | None:
        """Return the message if it is a response of at most `MAX_PARSED` bytes; it must not be changed.

        Args:
            any_length: Whether a message of more than `MAX_PARSED` bytes is parsed, too.
        """
        return self._parsed("response", any_length=any_length)  # type: ignore[return-value]

    def event(self, *, any_length: bool = False) -> Event | None:
        """Return the message if it is an event, in the same way as `response`."""
        return self._parsed("event", any_length=any_length)  # type: ignore[return-value]

    def _parsed(self, kind: str, *, any_length: bool = False) -> Mapping[str, object] | None:
        if self._message is None:
            self._parse(self.whole_body if any_length else self.body)
        return self._message if self.type == kind else None

    def _read_head(self) -> None:
        """Identify the message by its first fields, if it begins in the usual way."""
        found = _HEAD.match(self.data, self._start)
        if found is None:
            self._parse(self.body)
        else:
            seq, event, response, request_seq, name = found.groups()
            self.type, self.name = (event or response).decode(), name.decode()
            self.seq, self.request_seq = int(seq), int(request_seq or 0)

    def _parse(self, body: bytes) -> None:
        """Parse the message, and identify it again: if a field occurs twice, the last occurrence counts."""
        if not body:
            return
        try:
            self._message = messages.parse(body)
        except ProtocolError:
            self._message = _INVALID
        self._identify(self._message)

    def _identify(self, message: Mapping[str, object]) -> None:
        kind, seq, answered = message.get("type"), message.get("seq"), message.get("request_seq")
        name = message.get("event" if kind == "event" else "command")
        self.request_seq = 0
        if kind == "response" and isinstance(answered, int):
            self.type, self.name = "response", name if isinstance(name, str) else ""
            self.request_seq = answered
        elif kind == "event" and isinstance(name, str):
            self.type, self.name = "event", name
        elif kind == "request" and isinstance(name, str) and isinstance(seq, int):
            self.type, self.name = "request", name
        else:
            self.type, self.name, seq = "", "", 0
        self.seq = seq if isinstance(seq, int) else 0


# A splitter that cuts a byte stream at the boundaries of DAP messages and passes every byte on unchanged.

_USUAL_HEADER = re.compile(rb"Content-Length: ([0-9]{1,10})\r\n\r\n")
"""The start of a message as every known debugger and editor writes it."""


class MessageSplitter(Generic[PieceType]):
    """The splitter for one direction of a connection.

    Once the stream is found not to be DAP, all further bytes are passed on immediately.

    Args:
        make: The class of the pieces.
    """

    def __init__(self, make: type[PieceType]) -> None:
        self._make = make
        self._longest = MAX_PARSED
        self._buffer = bytearray()
        self._long = 0
        """Bytes of a long message that have not been passed on yet."""
        self._is_foreign = False
        """True if the rest of the stream is not DAP."""
        self._has_messages = False
        """True if at least one DAP message was recognized."""

    def feed(self, data: bytes, longest: int = MAX_PARSED) -> list[PieceType]:
        """Take bytes and return the pieces that can be passed on.

        Args:
            data: The next bytes of the stream.
            longest: Maximum size of the JSON in bytes; a longer message is passed on in parts, as they arrive.
        """
        self._longest = longest
        pieces: list[PieceType] = []
        if not (self._buffer or self._long or self._is_foreign):
            data = self._take_whole(data, pieces)
        self._buffer += data
        while self._buffer and (piece := self._next()):
            pieces.append(piece)
        return pieces

    def end(self, kind: Kind = Kind.CUT) -> list[PieceType]:
        """Return the bytes of an incomplete message as a piece of that kind; the default is for the end of a stream."""
        rest = self._take(len(self._buffer))
        return [self._make(rest, kind)] if rest else []

    def _take_whole(self, data: bytes, pieces: list[PieceType]) -> bytes:
        """Add the whole messages at the start of `data` to `pieces`; return the rest.

        Usually nothing remains. Every message takes this path, so it copies no bytes unnecessarily.
        """
        at = 0
        while at < len(data) and (header := _USUAL_HEADER.match(data, at)):
            start, length = header.end(), int(header[1])
            if length > self._longest or start + length > len(data):
                break
            # `data` itself, without a copy, if it is one message
            pieces.append(self._make(data[at : start + length], Kind.MESSAGE, start - at))
            at = start + length
            self._has_messages = True
        return data[at:]

    def _next(self) -> PieceType | None:
        if self._is_foreign:
            return self._foreign()
        if self._long:
            part = self._take(min(self._long, len(self._buffer)))
            self._long -= len(part)
            return self._make(part, Kind.PART if self._long else Kind.LAST_PART)
        try:
            # Decided at the first byte that differs: bytes of another protocol must not wait for an empty line.
            if not HEADER_START.startswith(bytes(self._buffer[: len(HEADER_START)])):
                raise ProtocolError("not a DAP header")
            found = find_body(self._buffer)
        except ProtocolError:
            self._is_foreign = True
            return self._foreign()
        return None if found is None else self._cut(*found)

    def _foreign(self) -> PieceType:
        kind = Kind.BROKEN if self._has_messages else Kind.FOREIGN
        return self._make(self._take(len(self._buffer)), kind)

    def _cut(self, start: int, length: int) -> PieceType | None:
        size = start + length
        self._has_messages = True
        if length > self._longest:
            self._long = size
            return self._next()
        if len(self._buffer) < size:
            return None
        return self._make(self._take(size), Kind.MESSAGE, start)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

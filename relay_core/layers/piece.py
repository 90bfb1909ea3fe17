"""Consecutive bytes of one direction of a connection, and the message in them, which is parsed once for all layers."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import NamedTuple, TypeVar, cast

from relay_core.dap import framing
from relay_core.dap.messages import Event, Message, Request, Response
from relay_core.errors import ProtocolError

__all__ = ["MAX_PARSED", "Head", "Kind", "Piece", "PieceType"]

MAX_PARSED = 256 * 1024
"""Bytes of JSON; a longer message is looked into only by layers that have to."""
_HEAD = re.compile(
    rb'\s*\{\s*"seq"\s*:\s*([0-9]{1,18})\s*,\s*"type"\s*:\s*"'
    rb'(?:(event)"\s*,\s*"event"'
    rb'|(response)"\s*,\s*"request_seq"\s*:\s*[0-9]{1,18}\s*,\s*"success"\s*:\s*(?:true|false)\s*,\s*"command")'
    rb'\s*:\s*"([A-Za-z.]{1,60})"'
)
"""The first fields of an event or a response, as debugpy's adapter writes them: then the rest need not be parsed."""


_INVALID: dict[str, object] = {}
"""In place of a message: the body is not one."""


class Kind(enum.Enum):
    """What a piece is. A message can be inserted after the first three only."""

    PLAIN = "bytes that were not cut into messages"
    MESSAGE = "a whole message with its header"
    LAST_PART = "the end of a message that is passed on in parts"
    PART = "another part of such a message"
    FOREIGN = "bytes of a stream that was never DAP"
    BROKEN = "bytes of a stream that is not DAP any more"
    CUT = "the incomplete message at the end of a stream"


_COMPLETE = frozenset({Kind.PLAIN, Kind.MESSAGE, Kind.LAST_PART})


class Head(NamedTuple):
    """What a message is; empty fields if it is none, or lacks a required one."""

    type: str = ""
    """`request`, `response` or `event`."""
    name: str = ""
    """The command or the event."""
    seq: int = 0
    """Its number."""

    @classmethod
    def of(cls, message: object) -> Head:
        """Return it for a parsed message."""
        if not isinstance(message, dict):
            return cls()
        kind, number = message.get("type"), message.get("seq")
        seq = number if isinstance(number, int) else 0
        if kind == "response" and isinstance(message.get("request_seq"), int):
            return cls(kind, _text(message.get("command")), seq)
        if kind == "event" and isinstance(name := message.get("event"), str):
            return cls(kind, name, seq)
        if kind == "request" and isinstance(name := message.get("command"), str) and isinstance(number, int):
            return cls(kind, name, seq)
        return cls()


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""


_NOTHING = Head()
PieceType = TypeVar("PieceType", bound="Piece")


class Piece:
    """Bytes, which pass on as they are. Equal to a piece of the same class with the same bytes.

    Args:
        data: The bytes.
        kind: What they are.
        start: Offset of the JSON in a message.
    """

    __slots__ = ("_head", "_message", "_start", "body", "data", "kind")

    def __init__(self, data: bytes, kind: Kind = Kind.PLAIN, start: int = 0) -> None:
        self.data = data
        self.kind = kind
        self.body = data[start:] if kind is Kind.MESSAGE and len(data) - start <= MAX_PARSED else b""
        """The JSON of a message of at most `MAX_PARSED` bytes, else b""."""
        self._start = start
        self._message: Mapping[str, object] | None = None
        self._head: Head | None = None

    @classmethod
    def of(cls: type[PieceType], message: Message) -> PieceType:  # noqa: PYI019 - `Self` needs Python 3.11
        """Return a new message."""
        data = framing.encode(message)
        piece = cls(data, Kind.MESSAGE, framing.body_start(data))
        piece._message, piece._head = message, Head.of(message)
        return piece

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
    def whole_body(self) -> bytes:
        """The JSON of a message of any length, else b""."""
        return self.body or (self.data[self._start :] if self.kind is Kind.MESSAGE else b"")

    @property
    def can_be_followed(self) -> bool:
        """True if a message can be inserted after this piece."""
        return self.kind in _COMPLETE

    @property
    def is_foreign(self) -> bool:
        """True if no part of the stream was DAP."""
        return self.kind is Kind.FOREIGN

    @property
    def head(self) -> Head:
        """The kind of the message; empty without a message, and for a long one that begins in an unusual way."""
        if self._head is None:
            found = _HEAD.match(self.data, self._start) if self.kind is Kind.MESSAGE else None
            if found is None:
                self._parse()
            else:
                self._head = Head((found[2] or found[3]).decode(), found[4].decode(), int(found[1]))
        return self._head or _NOTHING

    def request(self) -> Request | None:
        """Return the message if it is a request of at most `MAX_PARSED` bytes; it must not be changed."""
        return cast("Request", self._message) if self._is("request") else None

    def response(self, *, any_length: bool = False) -> Response | None:
        """Return the message if it is a response, likewise.

        Args:
            any_length: Whether a message of more than `MAX_PARSED` bytes is parsed, too.
        """
        return cast("Response", self._message) if self._is("response", any_length=any_length) else None

    def event(self, *, any_length: bool = False) -> Event | None:
        """Return the message if it is an event, likewise."""
        return cast("Event", self._message) if self._is("event", any_length=any_length) else None

    def _is(self, kind: str, *, any_length: bool = False) -> bool:
        if self._message is None:
            self._parse(any_length=any_length)
        return self._message is not None and self._head is not None and self._head.type == kind

    def _parse(self, *, any_length: bool = False) -> None:
        """Parse the message, and correct the head: a message may have a field twice, of which the last one counts."""
        body = self.whole_body if any_length else self.body
        if not body:
            return
        try:
            self._message = framing.parse(body)
        except ProtocolError:
            self._message = _INVALID
        self._head = Head.of(self._message)

"""A splitter that cuts a byte stream at the boundaries of DAP messages and passes every byte on unchanged."""

from __future__ import annotations

import re
from typing import Generic

from relay_core.dap.framing import HEADER_START, find_body
from relay_core.errors import ProtocolError
from relay_core.layers.piece import MAX_PARSED, Kind, PieceType

__all__ = ["MessageSplitter"]

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

    def __repr__(self) -> str:
        return f"<MessageSplitter {len(self._buffer)} bytes buffered{' foreign' if self._is_foreign else ''}>"

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

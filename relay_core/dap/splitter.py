"""A splitter that cuts a byte stream at message boundaries and passes every byte on unchanged."""

from __future__ import annotations

import re
from typing import NamedTuple

from relay_core.dap.framing import HEADER_START, find_body
from relay_core.errors import ProtocolError

__all__ = ["MAX_PARSED", "MessageSplitter", "Piece"]

MAX_PARSED = 256 * 1024
"""Bytes of JSON; longer messages are passed on without being parsed."""
_USUAL_HEADER = re.compile(rb"Content-Length: ([0-9]{1,10})\r\n\r\n")
"""The start of a message as every known debugger and editor writes it."""


class Piece(NamedTuple):
    """Consecutive bytes of the stream."""

    raw: bytes
    """The bytes to pass on: a whole message with its header, or part of anything else."""
    body: bytes
    """The JSON of a whole message, or b""."""


class MessageSplitter:
    """The splitter for one direction of a connection.

    Once the stream is found not to be DAP, all further bytes are passed on immediately.

    Args:
        max_parsed: Bytes of JSON; a longer message is passed on in parts, as they arrive.
    """

    def __init__(self, max_parsed: int = MAX_PARSED) -> None:
        self.max_parsed = max_parsed
        self._buffer = bytearray()
        self._long = 0
        """Bytes of a long message that have not been passed on yet."""
        self._is_foreign = False
        """True if the rest of the stream is not DAP."""
        self._has_messages = False
        """True if at least one DAP message was recognized."""

    def __repr__(self) -> str:
        return f"<MessageSplitter {len(self._buffer)} bytes buffered{' foreign' if self._is_foreign else ''}>"

    @property
    def at_boundary(self) -> bool:
        """True if the bytes passed on so far end with a complete message, so that another one may be inserted."""
        return not self._long and not self._is_foreign

    @property
    def is_foreign(self) -> bool:
        """True if no part of the stream was DAP: all bytes are passed on immediately."""
        return self._is_foreign and not self._has_messages

    @property
    def is_untouched(self) -> bool:
        """True if no message was recognized and no bytes are buffered."""
        return not (self._has_messages or self._buffer)

    def feed(self, data: bytes) -> list[Piece]:
        """Take bytes and return the pieces that can be passed on."""
        pieces: list[Piece] = []
        if not (self._buffer or self._long or self._is_foreign):
            data = self._take_whole(data, pieces)
        self._buffer += data
        while self._buffer and (piece := self._next()):
            pieces.append(piece)
        return pieces

    def end(self) -> bytes:
        """Return the bytes of an incomplete message at the end of the stream."""
        return self._take(len(self._buffer))

    def _take_whole(self, data: bytes, pieces: list[Piece]) -> bytes:
        """Add the whole messages at the start of `data` to `pieces`; return the rest.

        Usually nothing remains. Every message passes through this function in several layers, so it avoids copying.
        """
        at = 0
        while header := _USUAL_HEADER.match(data, at):
            start, length = header.end(), int(header[1])
            if length > self.max_parsed or start + length > len(data):
                break
            raw = data[at : start + length]  # no copy if the message is all of `data`
            pieces.append(Piece(raw, data[start : start + length]))
            at = start + length
            self._has_messages = True
        return data[at:]

    def _next(self) -> Piece | None:
        if self._is_foreign:
            return Piece(self.end(), b"")
        if self._long:
            part = self._take(min(self._long, len(self._buffer)))
            self._long -= len(part)
            return Piece(part, b"")
        try:
            # Decided at the first byte that differs: bytes of another protocol must not wait for an empty line.
            if not HEADER_START.startswith(bytes(self._buffer[: len(HEADER_START)])):
                raise ProtocolError("not a DAP header")
            found = find_body(self._buffer)
        except ProtocolError:
            self._is_foreign = True
            return Piece(self.end(), b"")
        return None if found is None else self._cut(*found)

    def _cut(self, start: int, length: int) -> Piece | None:
        size = start + length
        self._has_messages = True
        if length > self.max_parsed:
            self._long = size
            return self._next()
        if len(self._buffer) < size:
            return None
        raw = self._take(size)
        return Piece(raw, raw[start:])

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

"""Cuts a byte stream where its messages begin, and passes on every byte as it was."""

from __future__ import annotations

from typing import NamedTuple

from relay_core.dap.framing import BEGINNING, find_body
from relay_core.errors import ProtocolError

__all__ = ["MAX_WHOLE", "Cutter", "Piece"]

MAX_WHOLE = 256 * 1024
"""Bytes of JSON; longer messages are passed on without a look at their content."""


class Piece(NamedTuple):
    """Bytes that follow each other in the stream."""

    raw: bytes
    """What is to be passed on: a whole message with its header, or a part of something else."""
    body: bytes
    """The JSON of a whole message, or b""."""


class Cutter:
    """One direction of a connection.

    Bytes that are not of the debug adapter protocol are passed on at once, and so is all that comes after them.

    Args:
        max_whole: Bytes of JSON; a longer message is passed on in parts, as it comes.
    """

    def __init__(self, max_whole: int = MAX_WHOLE) -> None:
        self.max_whole = max_whole
        self._buffer = bytearray()
        self._long = 0
        """Bytes that are still to come of a long message."""
        self._foreign = False
        self._has_messages = False

    def __repr__(self) -> str:
        return f"<Cutter {len(self._buffer)} bytes kept{' foreign' if self._foreign else ''}>"

    @property
    def at_boundary(self) -> bool:
        """Whether what was passed on ends with a message, so that another one may follow."""
        return not self._long and not self._foreign

    @property
    def is_foreign(self) -> bool:
        """Whether this direction does not speak DAP, and never did: all bytes are passed on at once."""
        return self._foreign and not self._has_messages

    @property
    def is_untouched(self) -> bool:
        """Whether no message was recognised, and no bytes wait for the rest of one."""
        return not (self._has_messages or self._buffer)

    def feed(self, data: bytes) -> list[Piece]:
        """Take bytes and return those that can be passed on."""
        self._buffer += data
        pieces = []
        while self._buffer and (piece := self._next()):
            pieces.append(piece)
        return pieces

    def end(self) -> bytes:
        """Return the bytes of a message that will not be completed any more."""
        return self._take(len(self._buffer))

    def _next(self) -> Piece | None:
        if self._foreign:
            return Piece(self.end(), b"")
        if self._long:
            part = self._take(min(self._long, len(self._buffer)))
            self._long -= len(part)
            return Piece(part, b"")
        try:
            if not BEGINNING.startswith(bytes(self._buffer[: len(BEGINNING)])):
                raise ProtocolError("this is something else")
            found = find_body(self._buffer)
        except ProtocolError:
            self._foreign = True
            return Piece(self.end(), b"")
        return None if found is None else self._cut(*found)

    def _cut(self, start: int, length: int) -> Piece | None:
        size = start + length
        self._has_messages = True
        if length > self.max_whole:
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

"""WebSocket frames (RFC 6455 section 5), sans-IO: bytes in, events out, and back. The relay and its clients share it.

The decoder streams: payload leaves it as it arrives, cut to `MAX_PAYLOAD`, so a frame of any length costs no memory.
It knows one direction of one connection and nothing of sockets, peers or what the payload means. The result does not
depend on how the bytes were cut on their way in, except for where the payload of one message is cut.

Events are named tuples, not dataclasses: there is one for every 32 KiB, and they cost a third.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from relay_core.ws.masking import apply_mask

__all__ = [
    "BINARY",
    "CLOSE",
    "CONTINUATION",
    "MAX_PAYLOAD",
    "PING",
    "PONG",
    "TEXT",
    "Chunk",
    "Close",
    "Event",
    "FrameDecoder",
    "Ping",
    "Pong",
    "Violation",
    "close_payload",
    "encode_chunks",
    "encode_frame",
    "encode_masked",
    "encode_message",
]

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

MAX_PAYLOAD = 32 * 1024
"""Longest payload of a frame the relay sends, as in Azure; Java's client refuses frames beyond 64 KiB."""
MAX_CONTROL_PAYLOAD = 125
"""RFC 6455 section 5.5."""

_FIN, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
_CLOSE_CODES_IN_USE = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})
"""Codes below 3000 that may stand in a Close frame (RFC 6455 section 7.4, IANA registry)."""


class Chunk(NamedTuple):
    """A piece of a data message, ready to be sent on as one frame."""

    opcode: int
    """TEXT or BINARY for the first piece of a message, CONTINUATION for the others."""
    payload: bytes
    """At most MAX_PAYLOAD bytes; empty only where the peer sent an empty frame."""
    fin: bool
    """Whether the message ends here."""
    reserved: int = 0
    """RSV bits as they stood in the frame's first byte; an agreed extension gives them a meaning."""


class Ping(NamedTuple):
    """The peer wants a pong with the same payload."""

    payload: bytes


class Pong(NamedTuple):
    """The peer answered a ping, or just shows life."""

    payload: bytes


class Close(NamedTuple):
    """The peer ended its direction; nothing after it is decoded."""

    payload: bytes
    """Code and reason as they stood in the frame, checked; empty if there was no code."""

    @property
    def code(self) -> int:
        """The close code; 1005 if the frame had none."""
        return int.from_bytes(self.payload[:2], "big") if self.payload else 1005

    @property
    def reason(self) -> str:
        """The text after the code."""
        return self.payload[2:].decode()


class Violation(NamedTuple):
    """The peer broke the protocol; nothing after it is decoded."""

    code: int
    """Close code that says so."""
    reason: str


Event = Chunk | Ping | Pong | Close | Violation


class _Broken(Exception):
    """Carries a violation out of the parser."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.violation = Violation(code, reason)


class FrameDecoder:
    """Turns a peer's bytes into events.

    Args:
        extensions_agreed: Whether RSV bits may be set on data frames.
        from_client: Whether the peer is a client, which masks its frames, or a server, which does not.
    """

    def __init__(self, *, extensions_agreed: bool = False, from_client: bool = True) -> None:
        self._mask_bit = _MASKED if from_client else 0
        self._mask_bytes = 4 if from_client else 0
        self._reserved_allowed = _RESERVED if extensions_agreed else 0
        self._rest = b""  # an incomplete header, or an incomplete control frame
        self._in_message = False
        self._finished = False
        # The data frame whose payload is arriving:
        self._remaining = 0
        self._opcode = CONTINUATION
        self._reserved = 0
        self._fin = False
        self._mask = b""  # turned so that its first byte belongs to the next payload byte; empty for a server's frames

    def __repr__(self) -> str:
        state = "finished" if self._finished else f"{self._remaining} bytes of a frame to come"
        return f"<FrameDecoder {state}>"

    def feed(self, data: bytes | memoryview) -> list[Event]:
        """Return what `data` completes. Events own their bytes: the caller may overwrite `data` afterwards."""
        if self._finished:
            return []
        view = memoryview(self._rest + bytes(data)) if self._rest else memoryview(data)
        self._rest = b""
        events: list[Event] = []
        position, end = 0, len(view)
        try:
            while position < end:
                if self._remaining:
                    position = self._take_payload(view, position, events)
                    continue
                start = self._begin_frame(view, position, events)
                if start < 0:
                    self._rest = bytes(view[position:])
                    break
                position = start
        except _Broken as broken:
            self._finished = True
            events.append(broken.violation)
        return events

    def _take_payload(self, view: memoryview, position: int, events: list[Event]) -> int:
        """Copy what is there of the current data frame, at most MAX_PAYLOAD bytes; return where it ends."""
        stop = min(position + min(self._remaining, MAX_PAYLOAD), len(view))
        piece = view[position:stop]
        payload = apply_mask(piece, self._mask) if self._mask else bytes(piece)
        taken = stop - position
        self._remaining -= taken
        if self._mask and (phase := taken & 3):
            self._mask = self._mask[phase:] + self._mask[:phase]
        events.append(Chunk(self._opcode, payload, self._fin and not self._remaining, self._reserved))
        self._opcode, self._reserved = CONTINUATION, 0
        return stop

    def _begin_frame(self, view: memoryview, position: int, events: list[Event]) -> int:
        """Read a frame's header, and a control frame whole; return where it ends, or -1 if more is needed."""
        available = len(view) - position
        if available < 2:
            return -1
        first, second = view[position], view[position + 1]
        opcode = first & _OPCODE
        self._check(first, second, opcode)
        length, header = second & _LENGTH, 2 + self._mask_bytes
        if length >= 126:
            header += 2 if length == 126 else 8
            if available < header:
                return -1
            length = int.from_bytes(view[position + 2 : position + header - self._mask_bytes], "big")
            if length >> 63:
                raise _Broken(1002, "a frame's length has its highest bit set")
        elif available < header:
            return -1
        start = position + header
        mask = bytes(view[start - self._mask_bytes : start])
        if opcode >= CLOSE:
            if available < header + length:
                return -1
            payload = view[start : start + length]
            events.append(self._control(opcode, apply_mask(payload, mask) if mask and length else bytes(payload)))
            return len(view) if self._finished else start + length
        self._data(first, opcode, length, mask, events)
        return start

    def _check(self, first: int, second: int, opcode: int) -> None:
        """Refuse what the first two bytes of a frame already show to be wrong."""
        if second & _MASKED != self._mask_bit:
            raise _Broken(1002, f"a frame from a {'client is not' if self._mask_bit else 'server is'} masked")
        if opcode > PONG or BINARY < opcode < CLOSE:
            raise _Broken(1002, "a frame has an unknown opcode")
        if opcode >= CLOSE:
            if not first & _FIN or second & _LENGTH > MAX_CONTROL_PAYLOAD:
                raise _Broken(1002, "a control frame is fragmented or too long")
            if first & _RESERVED:
                raise _Broken(1002, "a control frame has reserved bits set")
            return
        if first & _RESERVED & ~self._reserved_allowed:
            raise _Broken(1002, "a frame has reserved bits set and no extension was agreed")
        if (opcode == CONTINUATION) != self._in_message:
            raise _Broken(1002, "a message begins inside another, or a continuation continues nothing")

    def _data(self, first: int, opcode: int, length: int, mask: bytes, events: list[Event]) -> None:
        self._fin = bool(first & _FIN)
        self._in_message = not self._fin
        if not length:
            events.append(Chunk(opcode, b"", self._fin, first & _RESERVED))
            return
        self._opcode, self._reserved, self._remaining, self._mask = opcode, first & _RESERVED, length, mask

    def _control(self, opcode: int, payload: bytes) -> Event:
        if opcode == PING:
            return Ping(payload)
        if opcode == PONG:
            return Pong(payload)
        _check_close(payload)
        self._finished = True
        return Close(payload)


def _check_close(payload: bytes) -> None:
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (code in _CLOSE_CODES_IN_USE or 3000 <= code < 5000):
        raise _Broken(1002, "a Close frame has no valid code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise _Broken(1007, "a Close frame's reason is no UTF-8") from None


def close_payload(code: int, reason: str = "") -> bytes:
    """Return a Close frame's payload; a reason that does not fit is cut at a character."""
    text = reason.encode()[: MAX_CONTROL_PAYLOAD - 2]
    return code.to_bytes(2, "big") + text.decode(errors="ignore").encode()


def encode_frame(opcode: int, payload: bytes, *, fin: bool = True, reserved: int = 0) -> bytes:
    """Return one unmasked frame; `payload` is at most MAX_PAYLOAD bytes."""
    return _header(opcode, len(payload), fin, reserved) + payload


def encode_masked(opcode: int, payload: bytes | bytearray | memoryview, mask: bytes) -> bytes:
    """Return one whole message or control frame of a client, with a payload of any length.

    Args:
        opcode: What it is.
        payload: Left as it is.
        mask: 4 bytes that nobody could foresee.
    """
    length = len(payload)
    if length < 126:
        header = bytes((opcode | _FIN, length | _MASKED))
    elif length < 65536:
        header = struct.pack("!BBH", opcode | _FIN, 126 | _MASKED, length)
    else:
        header = struct.pack("!BBQ", opcode | _FIN, 127 | _MASKED, length)
    return b"".join((header, mask, apply_mask(payload, mask) if length else b""))


def encode_message(opcode: int, payload: bytes) -> bytes:
    """Return one message, in frames of at most MAX_PAYLOAD bytes."""
    pieces = [payload[start : start + MAX_PAYLOAD] for start in range(0, len(payload), MAX_PAYLOAD)] or [b""]
    last = len(pieces) - 1
    return encode_chunks(
        Chunk(CONTINUATION if index else opcode, piece, index == last) for index, piece in enumerate(pieces)
    )


def encode_chunks(chunks: Iterable[Chunk]) -> bytes:
    """Return the frames for many chunks in one piece: one write costs less than many."""
    parts: list[bytes] = []
    for opcode, payload, fin, reserved in chunks:
        parts.append(_header(opcode, len(payload), fin, reserved))
        parts.append(payload)
    return b"".join(parts)


def _header(opcode: int, length: int, fin: bool, reserved: int) -> bytes:
    first = opcode | reserved | (_FIN if fin else 0)
    if length < 126:
        return bytes((first, length))
    return bytes((first, 126, length >> 8, length & 0xFF))

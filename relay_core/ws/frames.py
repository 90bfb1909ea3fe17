"""WebSocket frames (RFC 6455 section 5), sans-IO: a decoder from bytes to events, and encoders. Used by both sides.

The decoder streams: it returns payload as it arrives, in pieces of at most `MAX_PAYLOAD` bytes, so a frame of any
length needs no buffer. It handles one direction of one connection and is independent of sockets and of the payload's
meaning. How the input is split into `feed` calls has no effect on the events, except for where the payload of a message
is split.

Events are named tuples because creating a dataclass takes three times as long, and there is one for every 32 KiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

# Masking of payloads (RFC 6455 section 5.3), with the C extension of the `websockets` package if it is available.

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without a compiled wheel: the same result, about a hundred times slower
    from websockets.utils import apply_mask


CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

MAX_PAYLOAD = 32 * 1024
"""Maximum payload in bytes of a frame that the relay sends, as in Azure; Java's client rejects frames above 64 KiB."""
MAX_CONTROL_PAYLOAD = 125
"""Maximum payload in bytes of a control frame (RFC 6455 section 5.5)."""

_FIN, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
_WHOLE_BINARY = _FIN | BINARY
"""First byte of a frame that is a whole binary message."""
_CLOSE_CODES_IN_USE = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})
"""Codes below 3000 that a Close frame may contain (RFC 6455 section 7.4, IANA registry)."""


class Chunk(NamedTuple):
    """A piece of a data message, which can be forwarded as one frame."""

    opcode: int
    """TEXT or BINARY for the first piece of a message, CONTINUATION for the others."""
    payload: bytes
    """At most MAX_PAYLOAD bytes; empty only if the peer sent an empty frame."""
    fin: bool
    """True if this is the last piece of its message."""
    reserved: int = 0
    """RSV bits of the frame's first byte; negotiated extensions define their meaning."""


class Ping(NamedTuple):
    """A ping; the peer expects a pong with the same payload (RFC 6455 section 5.5.2)."""

    payload: bytes


class Pong(NamedTuple):
    """The answer to a ping, or an unsolicited pong (RFC 6455 section 5.5.3)."""

    payload: bytes


class Close(NamedTuple):
    """A Close frame: the peer has ended its direction, and nothing after it is decoded."""

    payload: bytes
    """Validated code and reason as in the frame; empty if the frame has no code."""

    @property
    def code(self) -> int:
        """The close code; 1005, "no status received", if the frame has none (RFC 6455 section 7.1.5)."""
        return int.from_bytes(self.payload[:2], "big") if self.payload else 1005

    @property
    def reason(self) -> str:
        """The text after the code."""
        return self.payload[2:].decode()


class Violation(NamedTuple):
    """A protocol violation of the peer; nothing after it is decoded."""

    code: int
    """The close code to send to the peer."""
    reason: str


Event = Chunk | Ping | Pong | Close | Violation


class _InvalidFrame(Exception):
    """Raised in the parser to report a violation, with its fields."""


class FrameDecoder:
    """Decodes the bytes of one peer into events.

    Args:
        extensions_agreed: Whether RSV bits may be set on data frames.
        from_client: True if the peer is a client, whose frames are masked; a server's frames are not.
    """

    def __init__(self, *, extensions_agreed: bool = False, from_client: bool = True) -> None:
        self._mask_bit = _MASKED if from_client else 0
        self._mask_bytes = 4 if from_client else 0
        self._reserved_allowed = _RESERVED if extensions_agreed else 0
        self._rest = b""  # an incomplete header or control frame
        self._in_message = False
        self._finished = False
        # State of the data frame whose payload is being received:
        self._remaining = 0
        self._opcode = CONTINUATION
        self._reserved = 0
        self._fin = False
        self._mask = b""  # rotated so that its first byte applies to the next payload byte; empty for a server's frames

    def feed(self, data: bytes | memoryview) -> list[Event]:
        """Return the events that `data` completes; they own their bytes, so the caller may overwrite `data` later."""
        if self._finished:  # after a Close the peer must not send anything (section 5.5.1)
            return []
        # `_rest` is never longer than a control frame, so joining it with `data` is cheap and happens rarely.
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
        except _InvalidFrame as invalid:
            self._finished = True
            events.append(Violation(*invalid.args))
        return events

    def _take_payload(self, view: memoryview, position: int, events: list[Event]) -> int:
        """Append at most MAX_PAYLOAD bytes of the current data frame's payload; return the position after them."""
        stop = min(position + min(self._remaining, MAX_PAYLOAD), len(view))
        piece = view[position:stop]
        payload = apply_mask(piece, self._mask) if self._mask else bytes(piece)
        taken = stop - position
        self._remaining -= taken
        # The 4-byte mask repeats over the whole payload (section 5.3), even across the pieces of one frame.
        if self._mask and (phase := taken & 3):
            self._mask = self._mask[phase:] + self._mask[:phase]
        events.append(Chunk(self._opcode, payload, self._fin and not self._remaining, self._reserved))
        # Only the first piece has the RSV bits: the others are forwarded as fragments, and an extension such as RFC
        # 7692 sets RSV1 only on the first frame.
        self._opcode, self._reserved = CONTINUATION, 0
        return stop

    def _begin_frame(self, view: memoryview, position: int, events: list[Event]) -> int:
        """Parse a data frame's header or a whole control frame; return the position after it, or -1 if incomplete."""
        available = len(view) - position
        if available < 2:
            return -1
        first, second = view[position], view[position + 1]
        opcode = first & _OPCODE
        # Nearly all frames are whole binary messages. The others are checked before the length, so that a violation is
        # reported even if the rest of the frame never arrives.
        if first != _WHOLE_BINARY or second & _MASKED != self._mask_bit or self._in_message:
            self._check(first, second, opcode)
        length, header = second & _LENGTH, 2 + self._mask_bytes
        if length >= 126:
            header += 2 if length == 126 else 8
            if available < header:
                return -1
            length = int.from_bytes(view[position + 2 : position + header - self._mask_bytes], "big")
            if length >> 63:  # section 5.2: the most significant bit must be 0
                raise _InvalidFrame(1002, "the length of a frame has its highest bit set")
        elif available < header:
            return -1
        start = position + header
        mask = bytes(view[start - 4 : start]) if self._mask_bit else b""
        if opcode >= CLOSE:
            if available < header + length:  # at most 125 bytes, so buffering them in `_rest` is cheap
                return -1
            payload = view[start : start + length]
            events.append(self._control(opcode, apply_mask(payload, mask) if mask and length else bytes(payload)))
            return len(view) if self._finished else start + length
        self._data(first, opcode, length, mask, events)
        return start

    def _check(self, first: int, second: int, opcode: int) -> None:
        """Raise `_InvalidFrame` for a violation in the first two bytes of a frame."""
        if second & _MASKED != self._mask_bit:  # section 5.1: clients must mask, servers must not
            raise _InvalidFrame(1002, f"a frame from a {'client is not' if self._mask_bit else 'server is'} masked")
        if opcode > PONG or BINARY < opcode < CLOSE:
            raise _InvalidFrame(1002, "a frame has an unknown opcode")
        if opcode >= CLOSE:
            # Section 5.5: control frames can be sent between the fragments of a message, so they are short and whole.
            if not first & _FIN or second & _LENGTH > MAX_CONTROL_PAYLOAD:
                raise _InvalidFrame(1002, "a control frame is fragmented or too long")
            if first & _RESERVED:
                raise _InvalidFrame(1002, "a control frame has reserved bits set")
            return
        if first & _RESERVED & ~self._reserved_allowed:
            raise _InvalidFrame(1002, "a frame has reserved bits set, but no extension was negotiated")
        if (opcode == CONTINUATION) != self._in_message:  # section 5.4: fragments of messages are not interleaved
            raise _InvalidFrame(1002, "a message starts inside another one, or a frame continues no message")

    def _data(self, first: int, opcode: int, length: int, mask: bytes, events: list[Event]) -> None:
        self._fin = bool(first & _FIN)
        self._in_message = not self._fin
        if not length:  # no payload will follow, so `_take_payload` would not report it
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
    # Section 7.4.2: 3000-3999 are registered by libraries, 4000-4999 are private. 1005, 1006 and 1015 are never sent.
    if len(payload) < 2 or not (code in _CLOSE_CODES_IN_USE or 3000 <= code < 5000):
        raise _InvalidFrame(1002, "a Close frame has no valid code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise _InvalidFrame(1007, "a Close frame's reason is not UTF-8") from None


def close_payload(code: int, reason: str = "") -> bytes:
    """Return the payload of a Close frame; a reason that is too long is truncated between two characters."""
    # The slice may end inside a character; `ignore` drops that character, because a reason must be valid UTF-8.
    text = reason.encode()[: MAX_CONTROL_PAYLOAD - 2]
    return code.to_bytes(2, "big") + text.decode(errors="ignore").encode()


def encode_frame(opcode: int, payload: bytes, *, fin: bool = True, reserved: int = 0) -> bytes:
    """Return one unmasked frame; `payload` is at most MAX_PAYLOAD bytes."""
    return _header(opcode, len(payload), fin, reserved) + payload


def encode_masked(opcode: int, payload: bytes | bytearray | memoryview, mask: bytes, *, fin: bool = True) -> bytes:
    """Return one frame from a client, with a payload of any length.

    Args:
        opcode: TEXT, BINARY, CONTINUATION or the opcode of a control frame.
        payload: The unmasked payload; it is not modified.
        mask: 4 unpredictable bytes. RFC 6455 section 10.3 explains why: proxies must not see bytes that a script chose.
        fin: False if more frames of the same message follow.
    """
    header = _header(opcode, len(payload), fin, masked=_MASKED)
    return b"".join((header, mask, apply_mask(payload, mask) if payload else b""))


def encode_message(opcode: int, payload: bytes) -> bytes:
    """Return one message, in frames of at most MAX_PAYLOAD bytes."""
    pieces = [payload[start : start + MAX_PAYLOAD] for start in range(0, len(payload), MAX_PAYLOAD)] or [b""]
    last = len(pieces) - 1
    return encode_chunks(
        Chunk(CONTINUATION if index else opcode, piece, index == last) for index, piece in enumerate(pieces)
    )


def encode_chunks(chunks: Iterable[Chunk]) -> bytes:
    """Return the frames of several chunks as one byte string, because one write costs less than several."""
    parts: list[bytes] = []
    for opcode, payload, fin, reserved in chunks:
        parts.append(_header(opcode, len(payload), fin, reserved))
        parts.append(payload)
    return b"".join(parts)


def _header(opcode: int, length: int, fin: bool, reserved: int = 0, masked: int = 0) -> bytes:
    first = opcode | reserved | (_FIN if fin else 0)
    # Section 5.2: 7 bits for the length, or 126 and 16 bits, or 127 and 64 bits; always the shortest form.
    if length < 126:
        return bytes((first, masked | length))
    if length < 65536:
        return struct.pack("!BBH", first, masked | 126, length)
    return struct.pack("!BBQ", first, masked | 127, length)

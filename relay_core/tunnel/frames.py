"""Frames on the wire: a fixed header of 20 bytes and a payload.

     0        1        2                 4                 8                 12                            20
    +--------+--------+-----------------+-----------------+-----------------+-----------------------------+-------
    |  type  | flags  | reserved = 0    | stream          | payload length  | sequence number, 0 for none | payload
    +--------+--------+-----------------+-----------------+-----------------+-----------------------------+-------

Network byte order. A frame with a sequence number survives a lost transport exactly once; one without is about
this transport only. A receiver skips an unknown type that carries `IGNORABLE` (and counts it if it is sequenced).

This file knows sizes and cutting, not meaning: `messages` reads payloads, `session` acts on them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD
from relay_core.tunnel.outcomes import Breach, ProtocolBreach

__all__ = [
    "FIRST_FRAMES",
    "HEADER_SIZE",
    "IGNORABLE",
    "Buffer",
    "Frame",
    "FrameDecoder",
    "encode_frame",
    "pack_header",
    "split_first",
]

Buffer = bytes | bytearray | memoryview
"""What is handed around without being copied, and never changed once handed over."""

# Sequenced: they change what the streams carry.
OPEN: Final = 0x01
OPEN_OK: Final = 0x02
DATA: Final = 0x03
FIN: Final = 0x04
RST: Final = 0x05
WINDOW: Final = 0x06
GOAWAY: Final = 0x07
# The first frame of each side on a transport. A receiver tells them by their first byte from a TLS record (0x14 to
# 0x17), azbridge's preamble (0x01 0x00) and text.
HELLO: Final = 0x31
WELCOME: Final = 0x32
RESUME: Final = 0x33
RESUMED: Final = 0x34
REFUSED: Final = 0x35
# Unsequenced: lost with their transport, and nothing is lost with them.
ACK: Final = 0x41
PING: Final = 0x42
PONG: Final = 0x43
STATUS: Final = 0x44

FIRST_FRAMES: Final = frozenset({HELLO, WELCOME, RESUME, RESUMED, REFUSED})

IGNORABLE: Final = 0x01
"""Flag of a frame that an older peer may skip."""

_HEADER = struct.Struct("!BBHIIQ")
HEADER_SIZE: Final = _HEADER.size


class Frame(NamedTuple):
    """One frame as received."""

    type: int
    flags: int
    stream: int
    seq: int
    payload: bytes


def pack_header(kind: int, stream: int, length: int, seq: int) -> bytes:
    """Return the header of a frame whose payload travels in a buffer of its own."""
    return _HEADER.pack(kind, 0, 0, stream, length, seq)


def encode_frame(kind: int, payload: bytes = b"", *, stream: int = 0, seq: int = 0, flags: int = 0) -> bytes:
    """Return a whole small frame."""
    return _HEADER.pack(kind, flags, 0, stream, len(payload), seq) + payload


def split_first(data: bytes) -> tuple[Frame, bytes] | None:
    """Cut the first frame of a transport off `data`; None if it is not complete yet.

    Raises:
        ProtocolBreach: it is no first frame; found at the first byte that shows it.
    """
    if data and data[0] not in FIRST_FRAMES:
        raise ProtocolBreach(Breach.UNKNOWN_FRAME, f"first byte {data[0]:#04x}")
    if len(data) < HEADER_SIZE:
        return None
    kind, flags, _, stream, length, seq = _HEADER.unpack_from(data)
    if length > MAX_CONTROL_PAYLOAD:
        raise ProtocolBreach(Breach.FRAME_TOO_LARGE, f"{length} bytes")
    end = HEADER_SIZE + length
    if len(data) < end:
        return None
    return Frame(kind, flags, stream, seq, data[HEADER_SIZE:end]), data[end:]


class FrameDecoder:
    """Cuts the bytes of one transport into frames, however they arrive.

    Args:
        max_payload: Largest DATA payload; any other frame may have `MAX_CONTROL_PAYLOAD`.
    """

    def __init__(self, max_payload: int) -> None:
        self._max_payload = max_payload
        self._partial = bytearray()
        """The frame under way, header first; never more than one frame."""
        self._wanted = HEADER_SIZE
        """Length of `_partial` at which the next decision falls: the header's end, then the frame's."""

    def __repr__(self) -> str:
        return f"<FrameDecoder {len(self._partial)} of {self._wanted}>"

    def feed(self, data: Buffer) -> Iterator[Frame]:
        """Yield the frames that `data` completes; nothing keeps a reference to `data`.

        Raises:
            ProtocolBreach: a payload length above the limit, as soon as its header is complete.
        """
        view = memoryview(data)
        at, end = 0, len(view)
        while at < end:
            if not self._partial and end - at >= HEADER_SIZE:
                # The fast path: a whole frame in one piece is copied once.
                stop = at + self._frame_length(view, at)
                if stop <= end:
                    yield self._frame(view, at, stop)
                    at = stop
                    continue
            start = at
            at = min(end, start + self._wanted - len(self._partial))
            self._partial += view[start:at]
            if len(self._partial) == HEADER_SIZE:
                self._wanted = self._frame_length(self._partial, 0)
            if len(self._partial) == self._wanted:
                frame = self._frame(memoryview(self._partial), 0, self._wanted)
                self._partial, self._wanted = bytearray(), HEADER_SIZE
                yield frame

    def _frame_length(self, data: Buffer, at: int) -> int:
        kind, _, _, _, length, _ = _HEADER.unpack_from(data, at)
        if length > (self._max_payload if kind == DATA else MAX_CONTROL_PAYLOAD):
            raise ProtocolBreach(Breach.FRAME_TOO_LARGE, f"{length} bytes")
        return HEADER_SIZE + int(length)

    @staticmethod
    def _frame(view: memoryview, at: int, stop: int) -> Frame:
        kind, flags, _, stream, _, seq = _HEADER.unpack_from(view, at)
        return Frame(kind, flags, stream, seq, bytes(view[at + HEADER_SIZE : stop]))

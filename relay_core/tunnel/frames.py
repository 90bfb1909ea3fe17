"""Frame encoding: a fixed header of 20 bytes and a payload.

     0        1        2                 4                 8                 12                            20
    +--------+--------+-----------------+-----------------+-----------------+-----------------------------+-------
    |  type  | flags  | reserved = 0    | stream          | payload length  | sequence number, 0 for none | payload
    +--------+--------+-----------------+-----------------+-----------------+-----------------------------+-------

Integers are in network byte order. A frame with a sequence number is delivered exactly once, even if its transport is
lost. A frame without one concerns only its own transport. A receiver skips a frame of an unknown type with the flag
`IGNORABLE`, but counts its sequence number.

This module handles sizes and boundaries only: `messages` and `payloads` decode payloads, and `session` acts on them.
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
"""Bytes that are passed on without a copy, and must not be modified after that."""

# Sequenced, because a lost or repeated frame would corrupt a stream.
OPEN: Final = 0x01
OPEN_OK: Final = 0x02
DATA: Final = 0x03
FIN: Final = 0x04
RST: Final = 0x05
WINDOW: Final = 0x06
GOAWAY: Final = 0x07
# The first frame of each side on a transport. Their first byte differs from that of a TLS record (0x14 to 0x17), of
# azbridge's preamble (0x01 0x00) and of text, so that a peer with another protocol is recognised at once.
HELLO: Final = 0x31
WELCOME: Final = 0x32
RESUME: Final = 0x33
RESUMED: Final = 0x34
REFUSED: Final = 0x35
# Unsequenced, because the next frame of the same type supersedes a lost one.
ACK: Final = 0x41
PING: Final = 0x42
PONG: Final = 0x43
STATUS: Final = 0x44
# Unsequenced, because the peer's response is the acknowledgement, and a request without one is sent again.
MESSAGE: Final = 0x45

FIRST_FRAMES: Final = frozenset({HELLO, WELCOME, RESUME, RESUMED, REFUSED})

IGNORABLE: Final = 0x01
"""Flag: a peer that does not know the type skips the frame. It allows new types without a new protocol version."""

_HEADER = struct.Struct("!BBHIIQ")
HEADER_SIZE: Final = _HEADER.size


class Frame(NamedTuple):
    """A received frame."""

    type: int
    flags: int
    stream: int
    seq: int
    payload: bytes


def pack_header(kind: int, stream: int, length: int, seq: int) -> bytes:
    """Return the header of a frame whose payload is sent from a separate buffer."""
    return _HEADER.pack(kind, 0, 0, stream, length, seq)


def encode_frame(kind: int, payload: bytes = b"", *, stream: int = 0, seq: int = 0, flags: int = 0) -> bytes:
    """Return a frame, header and payload in one buffer; for small payloads."""
    return _HEADER.pack(kind, flags, 0, stream, len(payload), seq) + payload


def split_first(data: bytes) -> tuple[Frame, bytes] | None:
    """Return the first frame of a transport and the bytes after it; None if it is incomplete.

    Raises:
        ProtocolBreach: The data does not start with a first frame.
    """
    # Checked before the header is complete: a peer with another protocol may send nothing more and wait for this side.
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
    """Splits the bytes of one transport into frames. Message boundaries of the WebSocket have no meaning.

    Args:
        max_payload: Maximum payload of DATA frames; that of all others is `MAX_CONTROL_PAYLOAD`.
    """

    def __init__(self, max_payload: int) -> None:
        self._max_payload = max_payload
        self._partial = bytearray()
        """Start of an incomplete frame."""
        self._wanted = HEADER_SIZE
        """Length that `_partial` must reach: first that of the header, then that of the frame."""

    def __repr__(self) -> str:
        return f"<FrameDecoder {len(self._partial)} of {self._wanted}>"

    def feed(self, data: Buffer) -> Iterator[Frame]:
        """Yield the frames that `data` completes. No reference to `data` is kept.

        Raises:
            ProtocolBreach: A header announces a payload larger than the limit.
        """
        view = memoryview(data)
        at, end = 0, len(view)
        while at < end:
            if not self._partial and end - at >= HEADER_SIZE:
                # Fast path: a frame that arrived in one piece is copied only once.
                kind, flags, _, stream, length, seq = _HEADER.unpack_from(view, at)
                self._check_length(kind, length)
                stop = at + HEADER_SIZE + length
                if stop <= end:
                    yield Frame(kind, flags, stream, seq, bytes(view[at + HEADER_SIZE : stop]))
                    at = stop
                    continue
            start = at
            at = min(end, start + self._wanted - len(self._partial))
            self._partial += view[start:at]
            # Checked before the payload arrives, so that at most one frame within the limit is ever buffered.
            if len(self._partial) == HEADER_SIZE:
                kind, _, _, _, length, _ = _HEADER.unpack_from(self._partial)
                self._check_length(kind, length)
                self._wanted = HEADER_SIZE + length
            if len(self._partial) == self._wanted:  # also directly after a header, for an empty payload
                kind, flags, _, stream, _, seq = _HEADER.unpack_from(self._partial)
                frame = Frame(kind, flags, stream, seq, bytes(memoryview(self._partial)[HEADER_SIZE:]))
                self._partial, self._wanted = bytearray(), HEADER_SIZE
                yield frame

    def _check_length(self, kind: int, length: int) -> None:
        # The limit of control frames applies to unknown types too; a later version must respect it to have its frames
        # skipped.
        if length > (self._max_payload if kind == DATA else MAX_CONTROL_PAYLOAD):
            raise ProtocolBreach(Breach.FRAME_TOO_LARGE, f"{length} bytes")

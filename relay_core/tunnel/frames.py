"""Frames of the tunnel: a fixed header of 20 bytes and a payload, and the encoding of payloads."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD, MAX_OPEN_METADATA, MAX_TARGET_NAME, MAX_TEXT
from relay_core.tunnel.outcomes import Breach, ProtocolBreach

# Frame encoding: a fixed header of 20 bytes and a payload.
#
#      0        1        2                 4                 8                 12                            20
#     +--------+--------+-----------------+-----------------+-----------------+-----------------------------+-------
#     |  type  | flags  | reserved = 0    | stream          | payload length  | sequence number, 0 for none | payload
#     +--------+--------+-----------------+-----------------+-----------------+-----------------------------+-------
#
# Integers are in network byte order. A frame with a sequence number is delivered exactly once, even if its transport is
# lost. A frame without one concerns only its own transport. A receiver skips a frame of an unknown type with the flag
# `IGNORABLE`, but counts its sequence number.
#
# `FrameDecoder` handles sizes and boundaries only: `messages` and the functions below decode payloads, and `session`
# acts on them.

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


# Frame payloads: integers, codes with a text, targets and small JSON objects.
#
# Fixed fields come first; a JSON object or a text, if there is one, is the rest of the payload.

JsonObject = Mapping[str, object]
"""A JSON object that the tunnel does not interpret; see `relay_core.agent_api`."""
Target = int | str
"""A logical port (1-65535), or a name."""

_CODE = struct.Struct("!H")
_TARGET = struct.Struct("!HB")
U32 = struct.Struct("!I")
U64 = struct.Struct("!Q")


def encode_open(target: Target, metadata: JsonObject) -> bytes:
    """Return an OPEN payload.

    Raises:
        ValueError: The target is neither a port nor a name of 1 to 255 bytes, or `metadata` is too long or not
            valid JSON.
    """
    # 0 is not a valid port, so it can mean that the target is a name.
    port, name = (target, b"") if isinstance(target, int) else (0, target.encode())
    if len(name) > MAX_TARGET_NAME or not (0 < port < 65536 or name):
        raise ValueError("a target is a port (1-65535) or a name of 1 to 255 bytes")
    return _TARGET.pack(port, len(name)) + name + encode_json(metadata, MAX_OPEN_METADATA)


def decode_open(payload: bytes) -> tuple[Target, JsonObject]:
    """Decode an OPEN payload.

    Raises:
        ProtocolBreach: The payload is malformed.
    """
    port, length = unpack(_TARGET, payload, 0)
    end = _TARGET.size + length
    name = payload[_TARGET.size : end]
    # Exactly one of port and name is given; the other is 0 or empty.
    if len(name) != length or bool(port) == bool(name):
        raise ProtocolBreach(Breach.MALFORMED, "target")
    try:
        target: Target = port or name.decode()
    except UnicodeDecodeError:
        raise ProtocolBreach(Breach.MALFORMED, "target") from None
    return target, decode_json(payload[end:])


def encode_code(code: int, text: str) -> bytes:
    """Return the payload of RST and GOAWAY: a code and a text, truncated to `MAX_TEXT` bytes."""
    # The text may quote a file name that is not valid Unicode, which must not prevent a reset.
    return _CODE.pack(code) + text.encode(errors="replace")[:MAX_TEXT]


def decode_code(payload: bytes) -> tuple[int, str]:
    """Decode a code and its text.

    Raises:
        ProtocolBreach: The payload is too short.
    """
    (code,) = unpack(_CODE, payload, 0)
    # Truncation may have split a character, which must not invalidate the frame, because the text is only for people.
    return code, payload[_CODE.size : _CODE.size + MAX_TEXT].decode(errors="ignore")


def decode_number(kind: struct.Struct, payload: bytes) -> int:
    """Decode the payload of WINDOW (U32), or of ACK, PING and PONG (U64).

    Raises:
        ProtocolBreach: The payload is too short.
    """
    # Bytes after the number are ignored: a later version may add fields.
    return int(unpack(kind, payload, 0)[0])


def encode_json(value: JsonObject, limit: int) -> bytes:
    """Return compact JSON, or no bytes for an empty object.

    Raises:
        ValueError: The value is not JSON, or longer than `limit` bytes.
    """
    if not value:
        return b""
    try:
        # NaN and Infinity are not JSON: a peer in another language would reject the whole frame.
        data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a JSON object: {error}") from None
    if len(data) > limit:
        raise ValueError(f"the JSON object is {len(data)} bytes long; the limit is {limit}")
    return data


def decode_json(data: bytes) -> JsonObject:
    """Decode a JSON object; no bytes mean an empty one.

    Raises:
        ProtocolBreach: The data is not a JSON object.
    """
    if not data:
        return {}
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError):  # json recurses: the object may be deeply nested
        value = None
    if not isinstance(value, dict):
        raise ProtocolBreach(Breach.MALFORMED, "JSON object")
    return value


def unpack(fields: struct.Struct, payload: bytes, at: int) -> tuple[Any, ...]:
    """Unpack fixed fields at an offset.

    Raises:
        ProtocolBreach: The payload is too short.
    """
    if len(payload) - at < fields.size:
        raise ProtocolBreach(Breach.MALFORMED, f"{len(payload)} bytes")
    return fields.unpack_from(payload, at)

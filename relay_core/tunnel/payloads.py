"""Frame payloads: integers, codes with a text, targets and small JSON objects.

Fixed fields come first; a JSON object or a text, if there is one, is the rest of the payload.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from relay_core.tunnel.limits import MAX_OPEN_METADATA, MAX_TARGET_NAME, MAX_TEXT
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, ResetCode

__all__ = [
    "JsonObject",
    "Target",
    "decode_code",
    "decode_json",
    "decode_open",
    "decode_reset",
    "decode_u32",
    "decode_u64",
    "encode_code",
    "encode_json",
    "encode_open",
    "encode_u32",
    "encode_u64",
    "unpack",
]

JsonObject = Mapping[str, object]
"""A JSON object that the tunnel does not interpret; see `relay_core.agent_api`."""
Target = int | str
"""A logical port (1-65535), or a name."""

_CODE = struct.Struct("!H")
_TARGET = struct.Struct("!HB")
_U32 = struct.Struct("!I")
_U64 = struct.Struct("!Q")


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


def decode_reset(payload: bytes) -> tuple[ResetCode, str]:
    """Decode a RST payload; raises the same error as `decode_code`."""
    code, text = decode_code(payload)
    return ResetCode(code), text


def encode_u32(value: int) -> bytes:
    """Return the payload of WINDOW."""
    return _U32.pack(value)


def decode_u32(payload: bytes) -> int:
    """Decode the payload of WINDOW.

    Raises:
        ProtocolBreach: The payload is too short.
    """
    # Bytes after the number are ignored: a later version may add fields.
    return int(unpack(_U32, payload, 0)[0])


def encode_u64(value: int) -> bytes:
    """Return the payload of ACK, PING and PONG."""
    return _U64.pack(value)


def decode_u64(payload: bytes) -> int:
    """Decode the payload of ACK, PING and PONG.

    Raises:
        ProtocolBreach: The payload is too short.
    """
    return int(unpack(_U64, payload, 0)[0])


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

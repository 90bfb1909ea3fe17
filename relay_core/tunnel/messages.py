"""Payloads: what the frames say, as values.

Every first frame starts with the same twelve bytes (magic, version, oldest version, capabilities), so that two
sides of any versions can at least tell each other why they part. Fixed fields come first and a JSON object or a text
last; bytes after the fixed fields of a message without either are ignored, which leaves room for later versions.

The proofs of RESUME and RESUMED are made here too, because they cover exactly these fields.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass, field
from typing import Any

from relay_core.tunnel import frames
from relay_core.tunnel.frames import Frame, encode_frame
from relay_core.tunnel.limits import (
    MAX_CONTROL_PAYLOAD,
    MAX_OPEN_METADATA,
    MAX_TARGET_NAME,
    MAX_TEXT,
    MIN_VERSION,
    VERSION,
    Limits,
)
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, Refusal, ResetCode, Role

__all__ = ["Greeting", "JsonObject", "Refused", "Resume", "Resumed", "Target", "Welcome"]

JsonObject = dict[str, Any]
Target = int | str
"""A logical port (1-65535), or a name."""

_MAGIC = b"RDT1"
_PREFACE = struct.Struct("!4sHHI")
_LIMITS = struct.Struct("!III")
_WELCOME = struct.Struct("!16s32s")
_RESUME = struct.Struct("!16sQQ16s32s")
_RESUMED = struct.Struct("!QQ32s")
_CODE = struct.Struct("!H")
_TARGET = struct.Struct("!HB")
_U32 = struct.Struct("!I")
_U64 = struct.Struct("!Q")

SESSION_ID_SIZE = 16
SECRET_SIZE = 32
NONCE_SIZE = 16


@dataclass(frozen=True)
class Greeting:
    """What each side says about itself when a session begins; the whole payload of HELLO."""

    limits: Limits
    info: JsonObject = field(default_factory=dict)
    """Who this is, for people and for the owner's rules; the tunnel does not look inside."""
    version: int = VERSION
    min_version: int = MIN_VERSION
    capabilities: int = 0
    """Bits of optional features; both sides use those that both have set. None is defined yet."""

    def common_version(self) -> int | None:
        """Return the newest version that this side and the sender of this greeting speak, or None."""
        version = min(self.version, VERSION)
        return version if version >= max(self.min_version, MIN_VERSION) else None

    def encode(self) -> bytes:
        """Return the HELLO payload.

        Raises:
            ValueError: `info` is no JSON or too long.
        """
        preface = _PREFACE.pack(_MAGIC, self.version, self.min_version, self.capabilities)
        limits = _LIMITS.pack(self.limits.max_payload, self.limits.window, self.limits.max_streams)
        head = preface + limits
        return head + encode_json(self.info, MAX_CONTROL_PAYLOAD - _WELCOME.size - len(head))

    @classmethod
    def decode(cls, payload: bytes) -> Greeting:
        """Read a HELLO payload.

        Raises:
            ProtocolBreach: it is malformed.
        """
        version, min_version, capabilities = _unpack_preface(payload)
        values = _unpack(_LIMITS, payload, _PREFACE.size)
        try:
            limits = Limits(*values)
        except ValueError as error:
            raise ProtocolBreach(Breach.MALFORMED, str(error)) from None
        info = decode_json(payload[_PREFACE.size + _LIMITS.size :])
        return cls(limits, info, version, min_version, capabilities)


@dataclass(frozen=True)
class Welcome:
    """The agent's answer to a HELLO: a session exists."""

    session_id: bytes
    secret: bytes = field(repr=False)
    """Proves, on each resume, that caller and agent are the ones who began the session."""
    greeting: Greeting

    def encode(self) -> bytes:
        """Return the whole frame."""
        return encode_frame(frames.WELCOME, self.greeting.encode() + _WELCOME.pack(self.session_id, self.secret))

    @classmethod
    def decode(cls, payload: bytes) -> Welcome:
        """Read a WELCOME payload.

        Raises:
            ProtocolBreach: it is malformed.
        """
        split = len(payload) - _WELCOME.size
        session_id, secret = _unpack(_WELCOME, payload, max(0, split))
        return cls(session_id, secret, Greeting.decode(payload[:split]))


@dataclass(frozen=True)
class Resume:
    """The client's claim to a session."""

    session_id: bytes
    epoch: int
    """Number of this attempt; an agent takes each number once and only upwards."""
    received: int
    """Sequence number of the last frame the client has."""
    nonce: bytes
    """Fresh for each attempt, so that an old RESUMED proves nothing."""
    proof: bytes = field(repr=False)

    @classmethod
    def make(cls, secret: bytes, session_id: bytes, *, epoch: int, received: int, nonce: bytes) -> Resume:
        """Return a claim with its proof."""
        return cls(session_id, epoch, received, nonce, _proof(secret, Role.CLIENT, session_id, epoch, received, nonce))

    def verify(self, secret: bytes) -> bool:
        """Whether the sender knows `secret`."""
        expected = _proof(secret, Role.CLIENT, self.session_id, self.epoch, self.received, self.nonce)
        return hmac.compare_digest(expected, self.proof)

    def encode(self) -> bytes:
        """Return the whole frame."""
        body = _RESUME.pack(self.session_id, self.epoch, self.received, self.nonce, self.proof)
        return encode_frame(frames.RESUME, _preface() + body)

    @classmethod
    def decode(cls, payload: bytes) -> Resume:
        """Read a RESUME payload.

        Raises:
            ProtocolBreach: it is malformed.
        """
        _unpack_preface(payload)
        return cls(*_unpack(_RESUME, payload, _PREFACE.size))


@dataclass(frozen=True)
class Resumed:
    """The agent's grant of a resume."""

    epoch: int
    received: int
    """Sequence number of the last frame the agent has."""
    proof: bytes = field(repr=False)

    @classmethod
    def make(cls, secret: bytes, resume: Resume, received: int) -> Resumed:
        """Return the answer to `resume` with its proof."""
        proof = _proof(secret, Role.AGENT, resume.session_id, resume.epoch, received, resume.nonce)
        return cls(resume.epoch, received, proof)

    def verify(self, secret: bytes, resume: Resume) -> bool:
        """Whether this answers `resume` and its sender knows `secret`."""
        expected = _proof(secret, Role.AGENT, resume.session_id, resume.epoch, self.received, resume.nonce)
        return self.epoch == resume.epoch and hmac.compare_digest(expected, self.proof)

    def encode(self) -> bytes:
        """Return the whole frame."""
        return encode_frame(frames.RESUMED, _preface() + _RESUMED.pack(self.epoch, self.received, self.proof))

    @classmethod
    def decode(cls, payload: bytes) -> Resumed:
        """Read a RESUMED payload.

        Raises:
            ProtocolBreach: it is malformed.
        """
        _unpack_preface(payload)
        return cls(*_unpack(_RESUMED, payload, _PREFACE.size))


@dataclass(frozen=True)
class Refused:
    """The agent's no to a HELLO or RESUME."""

    refusal: Refusal
    text: str

    def encode(self) -> bytes:
        """Return the whole frame."""
        return encode_frame(frames.REFUSED, _preface() + encode_code(self.refusal, self.text))

    @classmethod
    def decode(cls, payload: bytes) -> Refused:
        """Read a REFUSED payload.

        Raises:
            ProtocolBreach: it is malformed.
        """
        _unpack_preface(payload)
        code, text = decode_code(payload[_PREFACE.size :])
        return cls(Refusal(code), text)


def encode_open(target: Target, metadata: JsonObject) -> bytes:
    """Return an OPEN payload.

    Raises:
        ValueError: the target is no port and no name of 1 to 255 bytes, or `metadata` is no JSON or too long.
    """
    port, name = (target, b"") if isinstance(target, int) else (0, target.encode())
    if len(name) > MAX_TARGET_NAME or not (0 < port < 65536 or name):
        raise ValueError("a target is a port (1-65535) or a name of 1 to 255 bytes")
    return _TARGET.pack(port, len(name)) + name + encode_json(metadata, MAX_OPEN_METADATA)


def decode_open(payload: bytes) -> tuple[Target, JsonObject]:
    """Read an OPEN payload.

    Raises:
        ProtocolBreach: it is malformed.
    """
    port, length = _unpack(_TARGET, payload, 0)
    end = _TARGET.size + length
    name = payload[_TARGET.size : end]
    if len(name) != length or bool(port) == bool(name):
        raise ProtocolBreach(Breach.MALFORMED, "target")
    try:
        target: Target = port or name.decode()
    except UnicodeDecodeError:
        raise ProtocolBreach(Breach.MALFORMED, "target") from None
    return target, decode_json(payload[end:])


def encode_code(code: int, text: str) -> bytes:
    """Return the payload of RST and GOAWAY: a code and a sentence, cut to `MAX_TEXT` bytes."""
    return _CODE.pack(code) + text.encode(errors="replace")[:MAX_TEXT]


def decode_code(payload: bytes) -> tuple[int, str]:
    """Read a code and its sentence; a sentence that is cut or garbled is repaired, not refused.

    Raises:
        ProtocolBreach: there is no code.
    """
    (code,) = _unpack(_CODE, payload, 0)
    return code, payload[_CODE.size : _CODE.size + MAX_TEXT].decode(errors="ignore")


def decode_reset(payload: bytes) -> tuple[ResetCode, str]:
    """Read a RST payload; raises as `decode_code`."""
    code, text = decode_code(payload)
    return ResetCode(code), text


def encode_u32(value: int) -> bytes:
    """Return the payload of WINDOW."""
    return _U32.pack(value)


def decode_u32(payload: bytes) -> int:
    """Read the payload of WINDOW.

    Raises:
        ProtocolBreach: it is too short.
    """
    return int(_unpack(_U32, payload, 0)[0])


def encode_u64(value: int) -> bytes:
    """Return the payload of ACK, PING and PONG."""
    return _U64.pack(value)


def decode_u64(payload: bytes) -> int:
    """Read the payload of ACK, PING and PONG.

    Raises:
        ProtocolBreach: it is too short.
    """
    return int(_unpack(_U64, payload, 0)[0])


def encode_json(value: JsonObject, limit: int) -> bytes:
    """Return compact JSON, or nothing for an empty object.

    Raises:
        ValueError: it is no JSON or longer than `limit`.
    """
    if not value:
        return b""
    try:
        data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"this is no JSON object: {error}") from None
    if len(data) > limit:
        raise ValueError(f"the JSON object has {len(data)} bytes, {limit} are allowed")
    return data


def decode_json(data: bytes) -> JsonObject:
    """Read a JSON object; nothing stands for an empty one.

    Raises:
        ProtocolBreach: it is something else.
    """
    if not data:
        return {}
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProtocolBreach(Breach.MALFORMED, "JSON object")
    return value


def check_first(frame: Frame) -> None:
    """Accept only a first frame.

    Raises:
        ProtocolBreach: it is some other frame.
    """
    if frame.type not in frames.FIRST_FRAMES or frame.seq or frame.stream:
        raise ProtocolBreach(Breach.UNKNOWN_FRAME, f"first frame has type {frame.type:#04x}")


def _preface() -> bytes:
    return _PREFACE.pack(_MAGIC, VERSION, MIN_VERSION, 0)


def _unpack_preface(payload: bytes) -> tuple[int, int, int]:
    magic, version, min_version, capabilities = _unpack(_PREFACE, payload, 0)
    if magic != _MAGIC:
        raise ProtocolBreach(Breach.MALFORMED, "magic")
    return version, min_version, capabilities


def _unpack(fields: struct.Struct, payload: bytes, at: int) -> tuple[Any, ...]:
    if len(payload) - at < fields.size:
        raise ProtocolBreach(Breach.MALFORMED, f"{len(payload)} bytes")
    return fields.unpack_from(payload, at)


def _proof(secret: bytes, role: Role, session_id: bytes, epoch: int, received: int, nonce: bytes) -> bytes:
    """HMAC over the fields of RESUME or RESUMED; the role keeps one from passing for the other."""
    message = role.value.encode() + session_id + _U64.pack(epoch) + _U64.pack(received) + nonce
    return hmac.new(secret, message, hashlib.sha256).digest()

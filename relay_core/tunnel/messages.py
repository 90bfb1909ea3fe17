"""The first frame of each side on a transport: a session begins, goes on, or is refused.

Each of them starts with the same twelve bytes (magic, version, oldest version, capabilities), so that two
sides of any versions can at least tell each other why they part. Bytes after the last field of RESUME and RESUMED are
ignored, which leaves room for later versions.

The proofs of RESUME and RESUMED are made here too, because they cover exactly these fields.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field, replace

from relay_core.tunnel import frames
from relay_core.tunnel.frames import encode_frame
from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD, MIN_VERSION, VERSION, Limits
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, Refusal, Role
from relay_core.tunnel.payloads import (
    JsonObject,
    decode_code,
    decode_json,
    encode_code,
    encode_json,
    encode_u64,
    unpack,
)

__all__ = ["SECRET_SIZE", "SESSION_ID_SIZE", "Greeting", "Refused", "Resume", "Resumed", "Welcome"]

_MAGIC = b"RDT1"
_PREFACE = struct.Struct("!4sHHI")
_LIMITS = struct.Struct("!III")
_GREETING_SIZE = _PREFACE.size + _LIMITS.size
_WELCOME = struct.Struct("!16s32s")
_RESUME = struct.Struct("!16sQQ16s32s")
_RESUMED = struct.Struct("!QQ32s")

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
        """Return the whole HELLO frame.

        Raises:
            ValueError: `info` is no JSON or too long.
        """
        return encode_frame(frames.HELLO, self.encode_payload())

    def encode_payload(self, credentials: bytes = b"") -> bytes:
        """Return the payload; a WELCOME has its credentials before the JSON object."""
        preface = _PREFACE.pack(_MAGIC, self.version, self.min_version, self.capabilities)
        limits = _LIMITS.pack(self.limits.max_payload, self.limits.window, self.limits.max_streams)
        head = preface + limits + credentials
        return head + encode_json(self.info, MAX_CONTROL_PAYLOAD - len(head))

    @classmethod
    def decode(cls, payload: bytes, credentials: int = 0) -> Greeting:
        """Read a HELLO payload, or a WELCOME's with so many bytes of credentials.

        Raises:
            ProtocolBreach: it is malformed.
        """
        version, min_version, capabilities = _unpack_preface(payload)
        values = unpack(_LIMITS, payload, _PREFACE.size)
        try:
            limits = Limits(*values)
        except ValueError as error:
            raise ProtocolBreach(Breach.MALFORMED, str(error)) from None
        info = decode_json(payload[_GREETING_SIZE + credentials :])
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
        credentials = _WELCOME.pack(self.session_id, self.secret)
        return encode_frame(frames.WELCOME, self.greeting.encode_payload(credentials))

    @classmethod
    def decode(cls, payload: bytes) -> Welcome:
        """Read a WELCOME payload.

        Raises:
            ProtocolBreach: it is malformed.
        """
        greeting = Greeting.decode(payload, _WELCOME.size)
        session_id, secret = unpack(_WELCOME, payload, _GREETING_SIZE)
        return cls(session_id, secret, greeting)


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
        claim = cls(session_id, epoch, received, nonce, b"")
        return replace(claim, proof=claim.expected_proof(secret, Role.CLIENT, received))

    def verify(self, secret: bytes) -> bool:
        """Whether the sender knows `secret`."""
        return hmac.compare_digest(self.expected_proof(secret, Role.CLIENT, self.received), self.proof)

    def expected_proof(self, secret: bytes, role: Role, received: int) -> bytes:
        """Return the HMAC over this claim that `role` makes; the role keeps one proof from passing for the other."""
        message = role.value.encode() + self.session_id + encode_u64(self.epoch) + encode_u64(received) + self.nonce
        return hmac.new(secret, message, hashlib.sha256).digest()

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
        return cls(*unpack(_RESUME, payload, _PREFACE.size))


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
        return cls(resume.epoch, received, resume.expected_proof(secret, Role.AGENT, received))

    def verify(self, secret: bytes, resume: Resume) -> bool:
        """Whether this answers `resume` and its sender knows `secret`."""
        expected = resume.expected_proof(secret, Role.AGENT, self.received)
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
        return cls(*unpack(_RESUMED, payload, _PREFACE.size))


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


def _preface() -> bytes:
    return _PREFACE.pack(_MAGIC, VERSION, MIN_VERSION, 0)


def _unpack_preface(payload: bytes) -> tuple[int, int, int]:
    magic, version, min_version, capabilities = unpack(_PREFACE, payload, 0)
    if magic != _MAGIC:
        raise ProtocolBreach(Breach.MALFORMED, "magic")
    return version, min_version, capabilities

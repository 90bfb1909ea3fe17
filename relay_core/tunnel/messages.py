"""Payloads of the first frames: HELLO, WELCOME, RESUME, RESUMED and REFUSED.

All start with the same twelve bytes (magic, version, oldest version, capabilities), so that peers of any versions can
report why they refuse. Bytes after the last field of RESUME and RESUMED are ignored and can be used by later versions.

The proofs of RESUME and RESUMED are computed here too, because they cover exactly these fields.

Why a proof and not the secret itself: a RESUME can be cut off, delayed or sent again by whoever carries it, and a
secret that has been sent once is known to all of them. The HMAC binds the secret to one attempt. Each of its fields
refuses a substitution:

    session id   the proof of one session for another one
    epoch        an old RESUME, which could take the session away from its client
    received     changed numbers, after which frames would be skipped or sent twice
    nonce        an old RESUMED, with which somebody could pretend to be the agent
    role         the client's proof as the agent's

Why fixed structures and not JSON: the fields are binary, the lengths are part of the check, and a first frame is parsed
before anything is known about its sender. Only `info`, which the tunnel does not interpret, is JSON.

What is ugly: without a tunnel key, WELCOME carries the secret unencrypted, and a relay that reads it can resume the
session. Nothing in this module can prevent that; a key exchange without authentication would only exclude a relay that
reads and does not change. The proof still keeps out everybody who has seen no WELCOME.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import astuple, dataclass, field, replace
from typing import ClassVar, TypeVar

from relay_core.tunnel import frames
from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD, MIN_VERSION, VERSION, Limits
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, Refusal, Role

# In the payload of every first frame, where neither an HTTP response nor a TLS record has these bytes.
_MAGIC = b"RDT1"
_PREFACE = struct.Struct("!4sHHI")
_LIMITS = struct.Struct("!III")
_GREETING_SIZE = _PREFACE.size + _LIMITS.size
_WELCOME = struct.Struct("!16s32s")

SESSION_ID_SIZE = 16
SECRET_SIZE = 32
NONCE_SIZE = 16
T = TypeVar("T", bound="_ResumeMessage")


@dataclass(frozen=True)
class Greeting:
    """Version, limits and info of one side, exchanged when a session starts; the complete payload of HELLO."""

    limits: Limits
    info: frames.JsonObject = field(default_factory=dict)
    """Application data, not interpreted by the tunnel."""
    version: int = VERSION
    min_version: int = MIN_VERSION
    capabilities: int = 0
    """Bits of optional features, of which none exists; a feature is used if both sides set its bit."""

    def common_version(self) -> int | None:
        """Return the newest version that both sides support, or None."""
        version = min(self.version, VERSION)
        return version if version >= max(self.min_version, MIN_VERSION) else None

    def encode(self) -> bytes:
        """Return the HELLO frame.

        Raises:
            ValueError: `info` is not JSON or too long.
        """
        return frames.encode_frame(frames.HELLO, self.encode_payload())

    def encode_payload(self, credentials: bytes = b"") -> bytes:
        """Return the payload; that of a WELCOME has session id and secret before the JSON object."""
        preface = _PREFACE.pack(_MAGIC, self.version, self.min_version, self.capabilities)
        limits = _LIMITS.pack(self.limits.max_payload, self.limits.window, self.limits.max_streams)
        head = preface + limits + credentials
        # The info is last and has no length field, so it can use the rest of the frame.
        return head + frames.encode_json(self.info, MAX_CONTROL_PAYLOAD - len(head))

    @classmethod
    def decode(cls, payload: bytes, credentials: int = 0) -> Greeting:
        """Decode a HELLO payload, or a WELCOME payload with `credentials` bytes of session id and secret.

        Raises:
            ProtocolBreach: The payload is malformed.
        """
        version, min_version, capabilities = _unpack_preface(payload)
        values = frames.unpack(_LIMITS, payload, _PREFACE.size)
        try:
            # The peer's limits decide how much this side sends, so they are checked before anything uses them.
            limits = Limits(*values)
        except ValueError as error:
            raise ProtocolBreach(Breach.MALFORMED, str(error)) from None
        info = frames.decode_json(payload[_GREETING_SIZE + credentials :])
        return cls(limits, info, version, min_version, capabilities)


@dataclass(frozen=True)
class Welcome:
    """The agent's response to a HELLO: a session was created."""

    session_id: bytes
    secret: bytes = field(repr=False)
    """Key of the proofs with which both sides authenticate each resume."""
    greeting: Greeting

    def encode(self) -> bytes:
        """Return the frame, whose secret only the secure channel encrypts."""
        credentials = _WELCOME.pack(self.session_id, self.secret)
        return frames.encode_frame(frames.WELCOME, self.greeting.encode_payload(credentials))

    @classmethod
    def decode(cls, payload: bytes) -> Welcome:
        """Decode a WELCOME payload.

        Raises:
            ProtocolBreach: The payload is malformed.
        """
        greeting = Greeting.decode(payload, _WELCOME.size)
        session_id, secret = frames.unpack(_WELCOME, payload, _GREETING_SIZE)
        return cls(session_id, secret, greeting)


@dataclass(frozen=True)
class _ResumeMessage:
    """A first frame of which each field has a fixed size; a subclass names its type and the layout of its fields."""

    frame_type: ClassVar[int]
    layout: ClassVar[struct.Struct]

    def encode(self) -> bytes:
        return frames.encode_frame(self.frame_type, _preface() + self.layout.pack(*astuple(self)))

    @classmethod
    def decode(cls: type[T], payload: bytes) -> T:  # noqa: PYI019 - `Self` needs Python 3.11
        """Decode the payload.

        Raises:
            ProtocolBreach: The payload is malformed.
        """
        _unpack_preface(payload)
        return cls(*frames.unpack(cls.layout, payload, _PREFACE.size))


@dataclass(frozen=True)
class Resume(_ResumeMessage):
    """The client's request to continue a session on this transport."""

    frame_type: ClassVar[int] = frames.RESUME
    layout: ClassVar[struct.Struct] = struct.Struct("!16sQQ16s32s")
    session_id: bytes
    epoch: int
    """Number of this attempt. The agent accepts only increasing numbers, so that a RESUME cannot be replayed."""
    received: int
    """Sequence number of the last frame that the client has received."""
    nonce: bytes
    """Random for each attempt, so that a RESUMED cannot be replayed."""
    proof: bytes = field(repr=False)

    @classmethod
    def make(cls, secret: bytes, session_id: bytes, *, epoch: int, received: int, nonce: bytes) -> Resume:
        """Return a request with its proof."""
        # The proof covers all other fields, so the message must exist before its proof.
        unsigned = cls(session_id, epoch, received, nonce, b"")
        return replace(unsigned, proof=unsigned.expected_proof(secret, Role.CLIENT, received))

    def verify(self, secret: bytes) -> bool:
        """Return True if the sender knows `secret`."""
        # The time of compare_digest does not depend on where the proofs differ, so a proof cannot be guessed byte by
        # byte.
        return hmac.compare_digest(self.expected_proof(secret, Role.CLIENT, self.received), self.proof)

    def expected_proof(self, secret: bytes, role: Role, received: int) -> bytes:
        """Return the HMAC that `role` computes over this request and its own last received sequence number."""
        # The role prevents an attacker from sending a client's proof back as the agent's.
        numbers = frames.U64.pack(self.epoch) + frames.U64.pack(received)
        message = role.value.encode() + self.session_id + numbers + self.nonce
        return hmac.new(secret, message, hashlib.sha256).digest()


@dataclass(frozen=True)
class Resumed(_ResumeMessage):
    """The agent's confirmation of a resume."""

    frame_type: ClassVar[int] = frames.RESUMED
    layout: ClassVar[struct.Struct] = struct.Struct("!QQ32s")
    epoch: int
    received: int
    """Sequence number of the last frame that the agent has received."""
    proof: bytes = field(repr=False)

    @classmethod
    def make(cls, secret: bytes, resume: Resume, received: int) -> Resumed:
        """Return the response to `resume` with its proof."""
        return cls(resume.epoch, received, resume.expected_proof(secret, Role.AGENT, received))

    def verify(self, secret: bytes, resume: Resume) -> bool:
        """Return True if this is the response to `resume` and its sender knows `secret`."""
        # The proof covers the epoch of the request, so the copy in this message is compared.
        expected = resume.expected_proof(secret, Role.AGENT, self.received)
        return self.epoch == resume.epoch and hmac.compare_digest(expected, self.proof)


@dataclass(frozen=True)
class Refused:
    """The agent's refusal of a HELLO or RESUME."""

    refusal: Refusal
    text: str

    def encode(self) -> bytes:
        """Return the frame; a text of more than `MAX_TEXT` bytes is truncated."""
        return frames.encode_frame(frames.REFUSED, _preface() + frames.encode_code(self.refusal, self.text))

    @classmethod
    def decode(cls, payload: bytes) -> Refused:
        """Decode a REFUSED payload.

        Raises:
            ProtocolBreach: The payload is malformed.
        """
        _unpack_preface(payload)
        code, text = frames.decode_code(payload[_PREFACE.size :])
        return cls(Refusal(code), text)


def _preface() -> bytes:
    return _PREFACE.pack(_MAGIC, VERSION, MIN_VERSION, 0)


def _unpack_preface(payload: bytes) -> tuple[int, int, int]:
    # Versions are not compared here: a REFUSED because of an unsupported version must be readable too.
    magic, version, min_version, capabilities = frames.unpack(_PREFACE, payload, 0)
    if magic != _MAGIC:
        raise ProtocolBreach(Breach.MALFORMED, "magic")
    return version, min_version, capabilities

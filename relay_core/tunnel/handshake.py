"""Handshake on a new transport: the client's side, and the types that both sides share.

    new session:  HELLO  --->  WELCOME -> Attached
                               REFUSED -> NotAttached
    resume:       RESUME --->  RESUMED -> Attached     (the session uses this transport from now on)
                               REFUSED -> NotAttached  (a final refusal ends the session; any other has no effect on it)

A session keeps using its previous transport until the proof in RESUMED has been verified. The agent's side is in
`session_table`.

Why the first frame has a form of its own: its first byte must distinguish it from TLS, so that a missing tunnel key
gets an error message instead of "wrong version number". Why an attempt is an object: attempts overlap (make before
break, and a client that does not know whether its last attempt arrived), and only the newest may change the session.
The epoch is taken when the attempt is made, not when it succeeds; two attempts with the same number could not be
ordered. A RESUMED that fails its proof is not final for the client. Whoever could make it final could end sessions by
answering first, and the relay, which picks the listener, is such a party.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

from relay_core.tunnel import frames
from relay_core.tunnel.frames import Frame, JsonObject, split_first
from relay_core.tunnel.limits import Settings
from relay_core.tunnel.messages import Greeting, Refused, Resume, Resumed, Welcome
from relay_core.tunnel.outcomes import Breach, ProtocolBreach, Refusal, Role
from relay_core.tunnel.session import Session

# The `Relay-Tunnel` header, in which a client requests a tunnel before its offer is accepted.
#
#     Relay-Tunnel: v=1; client=<id>                    a new session, with any agent that has none with this client
#     Relay-Tunnel: v=1; client=<id>; agent=<id>        a resume, with this agent only
#
# The header allows an agent to refuse immediately (421) if the relay ignored the listener id in the request. The header
# is not authenticated; the handshake in the tunnel is. The text of the 421 ends with the id of the agent that refused,
# so that the client can detect a relay that ignores listener ids:
#
#     this is a different agent; agent=<id>

TUNNEL_HEADER = "Relay-Tunnel"
MISDIRECTED = 421
"""Misdirected Request (RFC 9110, 15.5.20): another agent on this hybrid connection may be the right one."""
VERSION = "1"
_REFUSING_AGENT = re.compile(r"; agent=([0-9A-Za-z-]{1,64})$", re.ASCII)


@dataclass(frozen=True)
class TunnelHeader:
    """The header's fields."""

    client: str
    agent: str | None = None

    def encode(self) -> str:
        """Return the header's value."""
        agent = f"; agent={self.agent}" if self.agent else ""
        return f"v={VERSION}; client={self.client}{agent}"

    @classmethod
    def parse(cls, text: str | None) -> TunnelHeader | None:
        """Parse the header's value; return None if it is missing or has another version."""
        # Unknown fields are ignored, so that later releases can add fields.
        fields = dict(part.strip().partition("=")[::2] for part in (text or "").split(";"))
        if fields.get("v") != VERSION or not fields.get("client"):
            return None
        return cls(fields["client"], fields.get("agent") or None)


def misdirected(text: str, agent: str) -> str:
    """Return the text of a 421 from an agent."""
    return f"{text}; agent={agent}"


def refusing_agent(reason: str) -> str | None:
    """Return the id of the agent that a 421's text names, or None if it names none."""
    match = _REFUSING_AGENT.search(reason)
    return match.group(1) if match else None


@dataclass(frozen=True)
class Attached:
    """The handshake succeeded: the session uses this transport now."""

    session: Session
    epoch: int
    """The transport's number, which identifies it in calls of the session."""
    new: bool
    """True if the session was created with this transport."""
    trailing: bytes
    """Bytes received after the first frame, for `Session.receive_data`."""
    reply: bytes = b""
    """Bytes to send before any others; empty on the client."""


@dataclass(frozen=True)
class NotAttached:
    """The handshake failed: send `reply`, then close the transport."""

    refusal: Refusal
    text: str
    reply: bytes = b""
    """The REFUSED frame for the peer; empty on the client."""


class ClientHandshake(ABC):
    """The client's handshake on one transport.

    Args:
        request: This side's first frame.
    """

    def __init__(self, request: bytes) -> None:
        self.request = request
        """This side's first frame."""
        self._received = b""

    def receive_data(self, data: bytes, now: float) -> Attached | NotAttached | None:
        """Process received bytes; return None until the response is complete."""
        self._received += data
        try:
            first = split_first(self._received)
            if first is None:
                return None
            frame, trailing = first
            if frame.type == frames.REFUSED:
                refused = Refused.decode(frame.payload)
                return self._refused(refused.refusal, refused.text)
            return self._answered(frame, trailing, now)
        except ProtocolBreach as breach:
            return NotAttached(Refusal.MALFORMED, str(breach))

    @abstractmethod
    def _answered(self, frame: Frame, trailing: bytes, now: float) -> Attached | NotAttached: ...

    def _refused(self, refusal: Refusal, text: str) -> NotAttached:
        return NotAttached(refusal, text)


class HelloHandshake(ClientHandshake):
    """The handshake for a new session.

    Args:
        settings: This side's limits and timers.
        info: Information about this client, up to about 32 KiB of JSON.

    Raises:
        ValueError: `info` is not JSON or too long.
    """

    def __init__(self, settings: Settings, info: JsonObject | None = None) -> None:
        super().__init__(Greeting(settings.limits, info or {}).encode())
        self._settings = settings

    def _answered(self, frame: Frame, trailing: bytes, now: float) -> Attached | NotAttached:
        _expect(frame, frames.WELCOME)
        welcome = Welcome.decode(frame.payload)
        # The agent has accepted this side's version; check that this side supports the one that the agent has chosen.
        if welcome.greeting.common_version() is None:
            return NotAttached(Refusal.VERSION, f"the agent uses protocol version {welcome.greeting.version}")
        session = Session(
            Role.CLIENT,
            session_id=welcome.session_id,
            secret=welcome.secret,
            settings=self._settings,
            peer=welcome.greeting,
            now=now,
        )
        epoch = session.next_epoch()
        # The agent has received no sequenced frame yet, so nothing needs to be resent.
        session.attach(epoch, 0, now)
        return Attached(session, epoch, new=True, trailing=trailing)


class ResumeHandshake(ClientHandshake):
    """The handshake that moves a session to a new transport; the previous one may be lost or still work.

    Args:
        session: A session that is not over.
        nonce: 16 random bytes.
    """

    def __init__(self, session: Session, nonce: bytes) -> None:
        self._session = session
        self._resume = Resume.make(
            session.secret, session.id, epoch=session.next_epoch(), received=session.received, nonce=nonce
        )
        super().__init__(self._resume.encode())

    def _answered(self, frame: Frame, trailing: bytes, now: float) -> Attached | NotAttached:
        _expect(frame, frames.RESUMED)
        session, resumed = self._session, Resumed.decode(frame.payload)
        # Verified before the session changes, because an unverified response may come from anybody, even the relay.
        if not resumed.verify(session.secret, self._resume):
            # Another agent responded, or this is a replay. The session continues: the next attempt may reach its agent.
            return NotAttached(Refusal.BAD_PROOF, "the response is not from this session's agent")
        # Attempts can overlap, and only the newest one counts on the agent too.
        if session.over or self._resume.epoch < session.epoch:
            return NotAttached(Refusal.STALE_EPOCH, "the session is over, or a newer attempt has been made")
        # Frames that were never sent cannot be resent. The two sides cannot agree again, so the session ends.
        if not session.can_resume(resumed.received):
            return self._refused(Refusal.SEQ_GAP, "the agent acknowledged frames that were never sent")
        # Only now does the session leave its previous transport, which may have carried data until this moment.
        session.attach(resumed.epoch, resumed.received, now)
        return Attached(session, resumed.epoch, new=False, trailing=trailing)

    def _refused(self, refusal: Refusal, text: str) -> NotAttached:
        self._session.resume_refused(refusal, text)
        return NotAttached(refusal, text)


def _expect(frame: Frame, kind: int) -> None:
    if frame.type != kind:
        raise ProtocolBreach(Breach.UNKNOWN_FRAME, f"first frame has type {frame.type:#04x}")

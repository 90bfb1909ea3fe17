"""The agent's side of a handshake: it finds out which session a transport belongs to.

    first frame    checks, in this order                                             refusal
    HELLO          a common version; a free place                                    VERSION, BUSY
    RESUME         the session is known; the proof is right; the epoch is new;       UNKNOWN_SESSION, BAD_PROOF,
                   the client claims only frames that were sent                      STALE_EPOCH, SEQ_GAP
    anything else                                                                    MALFORMED, KEY_MISMATCH for TLS

Only after the last check is a session touched, so nothing that a stranger sends can end anybody's transport. An agent
that was restarted knows no session: that is by design, stream bytes never go to a disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from relay_core.tunnel import frames
from relay_core.tunnel.frames import Frame
from relay_core.tunnel.handshake import Attached, FirstFrame, NotAttached
from relay_core.tunnel.limits import MAX_SESSIONS, MIN_VERSION, VERSION, Settings
from relay_core.tunnel.messages import SECRET_SIZE, SESSION_ID_SIZE, Greeting, Refused, Resume, Resumed, Welcome
from relay_core.tunnel.outcomes import ProtocolBreach, Refusal, Role
from relay_core.tunnel.payloads import JsonObject
from relay_core.tunnel.session import Session

__all__ = ["ENTROPY_SIZE", "AgentHandshake", "SessionTable"]

ENTROPY_SIZE = SESSION_ID_SIZE + SECRET_SIZE
"""Random bytes that a handshake needs in case it begins a session."""
TLS_HANDSHAKE = 0x16
"""First byte of a TLS connection."""


class SessionTable:
    """All sessions of one agent, attached or waiting for their client.

    Args:
        settings: Limits and timers of every session.
        info: What the next WELCOME says about this agent; the owner may change it.
        max_sessions: How many are held at a time.
    """

    def __init__(self, settings: Settings, *, info: JsonObject | None = None, max_sessions: int = MAX_SESSIONS) -> None:
        self.settings = settings
        self.info: JsonObject = info or {}
        self.counters: Counter[Refusal] = Counter()
        """Handshakes refused, by reason."""
        self._max_sessions = max_sessions
        self._sessions: dict[bytes, Session] = {}

    def __repr__(self) -> str:
        attached = sum(session.attached for session in self)
        return f"<SessionTable {attached} attached of {len(self)} refused={self.counters.total()}>"

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def sweep(self, now: float) -> list[Session]:
        """Tick every session, forget those that are over and return them; each still has its last events."""
        for session in self:
            session.tick(now)
        over = [session for session in self if session.over]
        for session in over:
            del self._sessions[session.id]
        return over

    def begin(self, hello: Greeting, entropy: bytes, now: float) -> tuple[Session, bytes] | NotAttached:
        """Begin a session for a HELLO; returns it with the WELCOME."""
        version = hello.common_version()
        if version is None:
            return self.refuse(Refusal.VERSION, f"the agent speaks versions {MIN_VERSION} to {VERSION}")
        self.sweep(now)
        if len(self) >= self._max_sessions:
            return self.refuse(Refusal.BUSY, f"the agent holds {len(self)} sessions already")
        session_id, secret = entropy[:SESSION_ID_SIZE], entropy[SESSION_ID_SIZE:ENTROPY_SIZE]
        greeting = Greeting(self.settings.limits, self.info, version=version)
        welcome = Welcome(session_id, secret, greeting).encode()
        session = Session(Role.AGENT, session_id=session_id, secret=secret, settings=self.settings, peer=hello, now=now)
        session.attach(session.next_epoch(), 0, now)
        self._sessions[session_id] = session
        return session, welcome

    def resume(self, resume: Resume, now: float) -> tuple[Session, bytes] | NotAttached:
        """Attach a transport to the session of a RESUME; returns it with the RESUMED."""
        self.sweep(now)
        session = self._sessions.get(resume.session_id)
        if session is None:
            return self.refuse(Refusal.UNKNOWN_SESSION, "the agent was restarted, or the session has expired")
        if not resume.verify(session.secret):
            return self.refuse(Refusal.BAD_PROOF, "the proof does not match the session")
        if resume.epoch <= session.epoch:
            return self.refuse(Refusal.STALE_EPOCH, f"epoch {session.epoch} has been seen")
        if not session.can_resume(resume.received):
            return self.refuse(Refusal.SEQ_GAP, "the client has frames that were never sent")
        reply = Resumed.make(session.secret, resume, session.received).encode()
        session.attach(resume.epoch, resume.received, now)
        return session, reply

    def refuse(self, refusal: Refusal, text: str) -> NotAttached:
        """Count a refusal and word it."""
        self.counters[refusal] += 1
        return NotAttached(refusal, text, Refused(refusal, text).encode())


class AgentHandshake:
    """One accepted transport that has not said yet what it is.

    Args:
        table: The agent's sessions.
        entropy: `ENTROPY_SIZE` random bytes, used if this becomes a new session.
    """

    def __init__(self, table: SessionTable, entropy: bytes) -> None:
        if len(entropy) != ENTROPY_SIZE:
            raise ValueError(f"{ENTROPY_SIZE} random bytes are needed")
        self._table = table
        self._entropy = entropy
        self._first = FirstFrame()

    def __repr__(self) -> str:
        return f"<AgentHandshake {self._first!r}>"

    def receive_data(self, data: bytes, now: float) -> Attached | NotAttached | None:
        """Take what the transport delivered; None until the first frame is complete."""
        if data[:1] == bytes([TLS_HANDSHAKE]) and self._first.empty:
            return self._table.refuse(Refusal.KEY_MISMATCH, "the client has a tunnel key and the agent has none")
        try:
            first = self._first.feed(data)
            if first is None:
                return None
            return self._decide(*first, now)
        except ProtocolBreach as breach:
            return self._table.refuse(Refusal.MALFORMED, str(breach))

    def _decide(self, frame: Frame, trailing: bytes, now: float) -> Attached | NotAttached:
        if frame.type == frames.HELLO:
            outcome = self._table.begin(Greeting.decode(frame.payload), self._entropy, now)
        elif frame.type == frames.RESUME:
            outcome = self._table.resume(Resume.decode(frame.payload), now)
        else:
            return self._table.refuse(Refusal.MALFORMED, f"no client sends a frame of type {frame.type:#04x}")
        if isinstance(outcome, NotAttached):
            return outcome
        session, reply = outcome
        return Attached(session, session.epoch, new=frame.type == frames.HELLO, trailing=trailing, reply=reply)

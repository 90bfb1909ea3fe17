"""The agent's sessions, and its side of the handshake.

    first frame    checks, in this order                                             refusal
    HELLO          common version; limit on sessions                                 VERSION, BUSY
    RESUME         session is known; proof is valid; epoch is new;                   UNKNOWN_SESSION, BAD_PROOF,
                   client reports only frames that were sent                         STALE_EPOCH, SEQ_GAP
    anything else                                                                    MALFORMED, KEY_MISMATCH for TLS

A session changes only after the last check, so that an unauthenticated peer cannot end its transport. Sessions are kept
in memory only and are lost when the agent restarts: stream data is never written to disk.

At the limit on sessions, a HELLO ends a session without a transport, whose client may have been killed: one without
open streams if there is any, and of those the one that lost its transport first. A session with open streams is ended
only if it has been without a transport for `REPLACE_IN_USE_AFTER`. A session with a transport is never ended.

Why the checks have this order: everything that an answer reveals (whether an id is known apart, its epoch and frame
numbers) comes after the proof, and a RESUME cut half-way changes nothing, so it can be repeated. The proof is not
replaced by the secure channel, because tunnels without a tunnel key have none, and because a tunnel key authenticates
a user's programs, not one session. The source address is not checked: it changes with the network, which is what a
resume is for, and behind the relay it is the relay's.

Why a session is ended at the limit at all: a killed client cannot say goodbye, and its session would keep a place for
the whole grace period; 32 restarts of a client would lock everybody out. Refusing instead would be simpler and was
rejected for that reason. The exception of `REPLACE_IN_USE_AFTER` exists because in an outage of the relay all sessions
are without a transport at once, and the first client to return must not end a debug session of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from relay_core.tunnel import frames
from relay_core.tunnel.frames import Frame, JsonObject, split_first
from relay_core.tunnel.handshake import Attached, NotAttached
from relay_core.tunnel.limits import MIN_VERSION, REPLACE_IN_USE_AFTER, VERSION, Settings
from relay_core.tunnel.messages import SECRET_SIZE, SESSION_ID_SIZE, Greeting, Refused, Resume, Resumed, Welcome
from relay_core.tunnel.outcomes import ProtocolBreach, Refusal, Role
from relay_core.tunnel.session import Session

ENTROPY_SIZE = SESSION_ID_SIZE + SECRET_SIZE
"""Random bytes that a handshake needs if it creates a session."""
TLS_HANDSHAKE = 0x16
"""First byte of a TLS connection (RFC 8446, 5.1)."""
MAX_REPLACED = 1000
"""Maximum number of replaced sessions whose clients still get the reason."""


class SessionTable:
    """All sessions of one agent, attached and detached.

    Args:
        settings: Limits and timers of each session.
        info: Information about this agent for the next WELCOME; the owner may change it.
    """

    def __init__(self, settings: Settings, *, info: JsonObject | None = None) -> None:
        self.settings = settings
        self.info: JsonObject = info or {}
        self._sessions: dict[bytes, Session] = {}
        self._replaced: deque[bytes] = deque(maxlen=MAX_REPLACED)
        """Ids of sessions that ended to make room for another client."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def sweep(self, now: float) -> None:
        """Check the deadlines of all sessions, and remove those that are over; each keeps its last events."""
        for session in self:
            session.tick(now)
            if session.over:
                del self._sessions[session.id]

    def begin(self, hello: Greeting, entropy: bytes, trailing: bytes, now: float) -> Attached | NotAttached:
        """Create a session for a HELLO, which `trailing` bytes follow; the reply is the WELCOME frame."""
        version = hello.common_version()
        if version is None:
            return _refused(Refusal.VERSION, f"the agent supports protocol versions {MIN_VERSION} to {VERSION}")
        self.sweep(now)  # expired sessions must not count against the limit
        if len(self) >= self.settings.max_sessions and not self._make_room(now):
            return _refused(Refusal.BUSY, f"the agent has reached its limit of {len(self)} sessions")
        session_id, secret = entropy[:SESSION_ID_SIZE], entropy[SESSION_ID_SIZE:ENTROPY_SIZE]
        greeting = Greeting(self.settings.limits, self.info, version=version)
        welcome = Welcome(session_id, secret, greeting).encode()
        session = Session(Role.AGENT, session_id=session_id, secret=secret, settings=self.settings, peer=hello, now=now)
        # Attached before WELCOME is sent, so that data from the agent can follow in the same flight.
        session.attach(session.next_epoch(), 0, now)
        self._sessions[session_id] = session
        return Attached(session, session.epoch, new=True, trailing=trailing, reply=welcome)

    def resume(self, resume: Resume, trailing: bytes, now: float) -> Attached | NotAttached:
        """Attach a transport to the session of a RESUME; the reply is the RESUMED frame."""
        self.sweep(now)
        session = self._sessions.get(resume.session_id)
        if session is None:
            is_replaced = resume.session_id in self._replaced
            text = self._why_replaced if is_replaced else "the agent was restarted, or the session has expired"
            return _refused(Refusal.UNKNOWN_SESSION, text)
        # The proof is checked first, because only the session's client may obtain its epoch and frame numbers.
        if not resume.verify(session.secret):
            return _refused(Refusal.BAD_PROOF, "the proof does not match the session")
        # This also handles overlapping attempts: the older one must not replace the newer transport.
        if resume.epoch <= session.epoch:
            return _refused(
                Refusal.STALE_EPOCH, f"the attempt to resume is not newer than the last one (epoch {session.epoch})"
            )
        if not session.can_resume(resume.received):
            return _refused(Refusal.SEQ_GAP, "the client acknowledged frames that were never sent")
        # All checks have passed; only now does the session leave its previous transport.
        reply = Resumed.make(session.secret, resume, session.received).encode()
        session.attach(resume.epoch, resume.received, now)
        return Attached(session, session.epoch, new=False, trailing=trailing, reply=reply)

    @property
    def _why_replaced(self) -> str:
        limit = self.settings.max_sessions
        return f"the session had no connection, and the agent needed its place for another client (limit: {limit})"

    def _make_room(self, now: float) -> bool:
        """End the session that is needed least; return False if all are needed."""
        candidates = [
            session
            for session in self
            if not (session.attached or (session.streams and now - session.detached_at < REPLACE_IN_USE_AFTER))
        ]
        if not candidates:
            return False
        session = min(candidates, key=lambda each: (len(each.streams) > 0, each.detached_at))
        session.abort(self._why_replaced)
        self._replaced.append(session.id)
        del self._sessions[session.id]
        return True


class AgentHandshake:
    """The agent's handshake on one transport.

    Args:
        table: The agent's sessions.
        entropy: `ENTROPY_SIZE` random bytes for the id and secret of a new session.
    """

    def __init__(self, table: SessionTable, entropy: bytes) -> None:
        if len(entropy) != ENTROPY_SIZE:
            raise ValueError(f"{ENTROPY_SIZE} random bytes required")
        self._table = table
        self._entropy = entropy
        self._received = b""

    def receive_data(self, data: bytes, now: float) -> Attached | NotAttached | None:
        """Process received bytes; return None until the first frame is complete."""
        # The client has a tunnel key and this agent has none, so the REFUSED frame must be sent unencrypted.
        if data[:1] == bytes([TLS_HANDSHAKE]) and not self._received:
            return _refused(Refusal.KEY_MISMATCH, "the client has a tunnel key but the agent has none")
        self._received += data
        try:
            first = split_first(self._received)
            if first is None:
                return None
            return self._decide(*first, now)
        except ProtocolBreach as breach:
            return _refused(Refusal.MALFORMED, str(breach))

    def _decide(self, frame: Frame, trailing: bytes, now: float) -> Attached | NotAttached:
        if frame.type == frames.HELLO:
            return self._table.begin(Greeting.decode(frame.payload), self._entropy, trailing, now)
        if frame.type == frames.RESUME:
            return self._table.resume(Resume.decode(frame.payload), trailing, now)
        return _refused(Refusal.MALFORMED, f"not a valid first frame from a client: type {frame.type:#04x}")


def _refused(refusal: Refusal, text: str) -> NotAttached:
    """Return a refusal with its REFUSED frame."""
    return NotAttached(refusal, text, Refused(refusal, text).encode())

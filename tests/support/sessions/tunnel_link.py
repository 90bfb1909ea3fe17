"""A client and an agent on a fake network: nothing moves, and no time passes, unless a test requests it.

link = Link()
link.connect()                      # HELLO and WELCOME over a first wire
stream = link.client.session.streams.open(5678)
link.settle()                       # everything arrives
link.wire.cut()
link.resume()
"""

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from relay_core.tunnel.events import (
    DataReceived,
    EofReceived,
    Event,
    RoundTrip,
    SessionOver,
    StatusReceived,
    StreamOpened,
    StreamReset,
    StreamWritable,
    TransportDead,
)
from relay_core.tunnel.handshake import Attached, ClientHandshake, HelloHandshake, NotAttached, ResumeHandshake
from relay_core.tunnel.limits import Settings
from relay_core.tunnel.outcomes import Death, ResetCode
from relay_core.tunnel.session import Session
from relay_core.tunnel.session_table import ENTROPY_SIZE, AgentHandshake, SessionTable

ENTROPY = bytes(range(ENTROPY_SIZE))
_POOL = random.Random(1).randbytes(1 << 20)


def pattern(key: int, start: int, size: int) -> bytes:
    """Return `size` bytes from position `start` of stream `key`'s text; misplaced bytes do not look right."""
    at = (key * 7919 + start) % (len(_POOL) // 2)
    return _POOL[at : at + size]


class Side:
    """One end: its session, and everything that the events of the session have reported."""

    def __init__(self, clock: Callable[[], float], *, accept: bool = True, consume: bool = True) -> None:
        self.session: Session | None = None
        self.clock = clock
        self.accept = accept
        self.consume = consume
        self.opened: dict[int, tuple[object, dict]] = {}
        self.received: dict[int, bytearray] = defaultdict(bytearray)
        self.unread: dict[int, int] = defaultdict(int)
        self.ended: set[int] = set()
        self.resets: dict[int, ResetCode] = {}
        self.writable: list[int] = []
        self.statuses: list[dict] = []
        self.dead: list[tuple[int, Death]] = []
        self.breaches: list[str] = []
        self.round_trips: list[float] = []
        self.over: SessionOver | None = None

    def collect(self) -> list[Event]:
        """Take the session's events to heart and return them."""
        events = self.session.events() if self.session else []
        for event in events:
            assert self.over is None, f"{event} after the end"
            self._take(event)
        return events

    def is_accepted(self, stream: int) -> bool:
        """Whether the peer has accepted a stream of this side."""
        found = self.session.streams._table.get(stream)
        return found is not None and found.accepted

    def read(self, stream: int, size: int) -> None:
        """The consumer passes on some of what it holds."""
        self.unread[stream] -= size
        self.session.streams.consumed(stream, size, self.clock())

    def read_all(self) -> None:
        for stream, size in self.unread.items():
            if size:
                self.read(stream, size)

    def _take(self, event: Event) -> None:
        match event:
            case StatusReceived(status):
                self.statuses.append(status)
            case TransportDead(epoch, death, text):
                self.dead.append((epoch, death))
                self.breaches += [text] if death is Death.BREACH else []
            case RoundTrip(seconds):
                self.round_trips.append(seconds)
            case SessionOver():
                self.over = event
            case _:
                self._take_stream_event(event)

    def _take_stream_event(self, event: Event) -> None:
        assert event.stream not in self.resets, f"{event} after the reset"
        match event:
            case DataReceived(stream, data):
                assert stream not in self.ended
                self.received[stream] += data
                self.unread[stream] += len(data)
                if self.consume:
                    self.read(stream, len(data))
            case StreamOpened(stream, target, metadata):
                assert stream not in self.opened
                self.opened[stream] = (target, metadata)
                if self.accept:
                    self.session.streams.accept(stream)
            case EofReceived(stream):
                assert stream not in self.ended
                self.ended.add(stream)
            case StreamReset(stream, code):
                self.resets[stream] = code
            case StreamWritable(stream):
                self.writable.append(stream)


class Wire:
    """One transport: the handshake that it begins with, the bytes under way, and who has noticed its end."""

    def __init__(self, link: "Link", client: ClientHandshake) -> None:
        self.link = link
        self.up = bytearray(client.request)
        """From the client to the agent."""
        self.down = bytearray()
        self.is_cut = False
        self.client_outcome: Attached | NotAttached | None = None
        self.agent_outcome: Attached | NotAttached | None = None
        self._client = client
        number = len(link.wires)
        self._agent = AgentHandshake(link.table, ENTROPY[number % 48 :] + ENTROPY[: number % 48])

    @property
    def epoch(self) -> int:
        """The number that the client knows it by, 0 before the answer."""
        return self.client_outcome.epoch if isinstance(self.client_outcome, Attached) else 0

    def deliver_up(self, size: int | None = None) -> int:
        """Let the agent have at most `size` of the bytes under way, and return how many it were."""
        data = _take(self.up, size)
        self.link.now += self.link.latency
        if self.agent_outcome is None:
            self.agent_outcome = self._agent.receive_data(data, self.link.now)
            if self.agent_outcome is not None:
                self.down += self.agent_outcome.reply
            data = self._begin(self.link.agent, self.agent_outcome, data)
        return self._receive(self.link.agent, self.agent_outcome, data)

    def deliver_down(self, size: int | None = None) -> int:
        """Let the client have at most `size` of the bytes under way, and return how many it were."""
        data = _take(self.down, size)
        self.link.now += self.link.latency
        if self.client_outcome is None:
            self.client_outcome = self._client.receive_data(data, self.link.now)
            data = self._begin(self.link.client, self.client_outcome, data)
        return self._receive(self.link.client, self.client_outcome, data)

    def _begin(self, side: Side, outcome: Attached | NotAttached | None, data: bytes) -> bytes:
        """Note the session that a handshake has found, and return what came behind the handshake."""
        if not isinstance(outcome, Attached):
            return data
        side.session = outcome.session
        return outcome.trailing

    def _receive(self, side: Side, outcome: Attached | NotAttached | None, data: bytes) -> int:
        if isinstance(outcome, Attached):
            side.session.receive_data(outcome.epoch, data, self.link.now)
        side.collect()
        return len(data)

    def push_up(self, limit: int = 1 << 20) -> int:
        """Let the client put frames on the wire, and return how many bytes it were."""
        return self._push(self.link.client, self.client_outcome, self.up, limit)

    def push_down(self, limit: int = 1 << 20) -> int:
        """Let the agent put frames on the wire, and return how many bytes it were."""
        return self._push(self.link.agent, self.agent_outcome, self.down, limit)

    def cut(self) -> None:
        """Both ends notice at once that the transport has ended; what was under way is lost."""
        self.is_cut = True
        self.lose_up()
        self.lose_down()

    def lose_up(self) -> None:
        """The agent notices the end."""
        self.up.clear()
        if isinstance(self.agent_outcome, Attached):
            self.link.agent.session.transport_lost(self.agent_outcome.epoch, self.link.now)
        self.link.agent.collect()

    def lose_down(self) -> None:
        """The client notices the end."""
        self.down.clear()
        if isinstance(self.client_outcome, Attached):
            self.link.client.session.transport_lost(self.client_outcome.epoch, self.link.now)
        self.link.client.collect()

    def _push(self, side: Side, outcome: Attached | NotAttached | None, wire: bytearray, limit: int) -> int:
        if not isinstance(outcome, Attached):
            return 0
        may_send = side.session.may_send
        data = b"".join(side.session.data_to_send(outcome.epoch, self.link.now, limit))
        assert may_send or not data
        side.collect()
        if not self.is_cut:  # who has not noticed the end writes into the void
            wire += data
        return len(data)


class Link:
    """Two sides, and the wires between them; the newest is `wire`."""

    def __init__(
        self,
        client: Settings | None = None,
        agent: Settings | None = None,
        *,
        info: dict | None = None,
        client_info: dict | None = None,
        now: float = 1000.0,
    ) -> None:
        self.now = now
        self.latency = 0.0
        """Seconds that each delivery takes."""
        self.client_settings = client or Settings()
        self.client_info = client_info
        self.table = SessionTable(agent or Settings(), info=info)
        self.client = Side(lambda: self.now)
        self.agent = Side(lambda: self.now)
        self.wires: list[Wire] = []

    @property
    def wire(self) -> Wire:
        return self.wires[-1]

    def dial(self) -> Wire:
        """Begin a transport: for a new session if the client has none."""
        if self.client.session is None:
            handshake = HelloHandshake(self.client_settings, self.client_info)
        else:
            handshake = ResumeHandshake(self.client.session, len(self.wires).to_bytes(16, "big"))
        self.wires.append(Wire(self, handshake))
        return self.wire

    def connect(self) -> Attached | NotAttached:
        """Begin a transport and finish its handshake."""
        wire = self.dial()
        wire.deliver_up()
        wire.deliver_down()
        return wire.client_outcome

    resume = connect

    def settle(self, each: Callable[[], None] = lambda: None) -> None:
        """Move everything over the newest wire until both sides have nothing more to say."""
        while True:
            moved = self.wire.push_up() + self.wire.push_down()
            moved += self.wire.deliver_up() + self.wire.deliver_down()
            each()
            if not moved and not self._tick_acks():
                return

    def wait(self, seconds: float) -> None:
        """Time passes, and both sides look at the clock."""
        self.now += seconds
        for side in (self.client, self.agent):
            if side.session is not None:
                side.session.tick(self.now)
            side.collect()

    def _tick_acks(self) -> bool:
        """Let a delayed acknowledgement become due, if one is waiting."""
        sessions = [side.session for side in (self.client, self.agent) if side.session and side.session.attached]
        waiting = [session._receipts.deadline for session in sessions if session._receipts.deadline is not None]
        if waiting:
            self.now = max(self.now, *waiting)
            for session in sessions:
                session.tick(self.now)
        return bool(waiting)


def connected(client: Settings | None = None, agent: Settings | None = None, **options: Any) -> Link:
    """A link with a session on its first wire; everything that both sides send at the beginning has arrived."""
    link = Link(client, agent, **options)
    assert isinstance(link.connect(), Attached)
    link.settle()
    return link


def _take(data: bytearray, size: int | None) -> bytes:
    taken = bytes(data[:size])
    del data[:size]
    return taken

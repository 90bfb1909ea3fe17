"""Two sides and any network: every byte arrives once and in order, buffers keep their limits, nothing gets stuck."""

import random
from collections import defaultdict
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from relay_core.errors import ConnectionLost
from relay_core.tunnel.frames import HEADER_SIZE
from relay_core.tunnel.handshake import Attached
from relay_core.tunnel.limits import MAX_CONTROL_PAYLOAD, MAX_PENDING_CONTROL, Limits, Settings
from relay_core.tunnel.outcomes import ResetCode, StreamLimitReached
from tests.support.sessions.tunnel_link import Link, Side, Wire, pattern

side_names = st.sampled_from(["client", "agent"])
choices = st.integers(0, 15)
"""Picks from a list of any length, the same for the same list."""

PAYLOADS = [1, 100, 300]
WINDOWS = [1, 64, 1000]
MAX_WINDOWS = [1, 300, 5000]
REPLAYS = [700, 2000, 1 << 20]
QUEUES = [1, 100, 1000]
ACK_BYTES = [100, 1 << 20]
ACK_FRAMES = [1, 64]
LIMITS = [1, 500, 1 << 20]
SIZES = [1, 19, 21, 150, 5000, None]
LATENCY = 0.01
"""Seconds that each delivery takes: round trips are measured, and windows grow."""
PAUSES = [0.01, 0.2, 3.0, 11.0, 26.0, 60.0]

small = partial(Settings, control_reserve=8192, quantum=50, grace=1e9)
small_settings = st.builds(
    small,
    st.builds(Limits, max_payload=st.sampled_from(PAYLOADS), window=st.sampled_from(WINDOWS), max_streams=st.just(4)),
    max_window=st.sampled_from(MAX_WINDOWS),
    replay_bytes=st.sampled_from(REPLAYS),
    send_queue=st.sampled_from(QUEUES),
    ack_bytes=st.sampled_from(ACK_BYTES),
    ack_frames=st.sampled_from(ACK_FRAMES),
)


class AnyNetwork(RuleBasedStateMachine):
    """Rules are what programs and networks may do; the model is how many bytes each direction has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[tuple[str, int], int] = defaultdict(int)
        self.ended: set[tuple[str, int]] = set()
        self.gone: set[int] = set()
        """Streams that somebody has reset or refused."""

    @initialize(client=small_settings, agent=small_settings)
    def begin(self, client: Settings, agent: Settings) -> None:
        self.link = Link(client, agent)
        self.link.latency = LATENCY
        for side in (self.link.client, self.link.agent):
            side.accept = side.consume = False
        assert isinstance(self.link.connect(), Attached)
        self.link.settle()

    def side(self, name: str) -> Side:
        return getattr(self.link, name)

    def live(self, name: str) -> list[int]:
        return list(self.side(name).session.streams._table._live)

    def wire(self, choice: int) -> Wire:
        """One of the newest wires; frames on older ones are as stale as those of the third."""
        recent = self.link.wires[-3:]
        return recent[choice % len(recent)]

    # --- programs ---

    @rule(name=side_names)
    def open(self, name: str) -> None:
        try:
            self.side(name).session.streams.open(5678, {"who": name})
        except StreamLimitReached:
            assert len(self.live(name)) >= 4

    @rule(name=side_names, choice=choices, code=st.sampled_from([None, ResetCode.NOT_ALLOWED]))
    def answer(self, name: str, choice: int, code: ResetCode | None) -> None:
        side = self.side(name)
        waiting = [stream for stream in self.live(name) if stream in side.opened]
        if waiting and code is None:
            side.session.streams.accept(waiting[choice % len(waiting)])
        elif waiting and choice == 0:  # refusals end streams, so they are rare
            side.session.streams.reset(waiting[0], code)
            self.gone.add(waiting[0])

    @rule(name=side_names, choice=choices, size=st.integers(1, 3000))
    def write(self, name: str, choice: int, size: int) -> None:
        for stream in self.live(name)[choice:][:1] or self.live(name)[:1]:
            start = self.taken[name, stream]
            try:
                taken = self.side(name).session.streams.send(stream, pattern(stream, start, size))
            except ConnectionLost:
                assert (name, stream) in self.ended
            else:
                self.taken[name, stream] += taken

    @rule(name=side_names, choice=choices)
    def end(self, name: str, choice: int) -> None:
        for stream in self.live(name)[choice:][:1]:
            if (name, stream) not in self.ended:
                self.side(name).session.streams.send_eof(stream)
                self.ended.add((name, stream))

    @rule(name=side_names, choice=choices)
    def reset(self, name: str, choice: int) -> None:
        for stream in self.live(name)[choice:][:1]:
            self.side(name).session.streams.reset(stream, ResetCode.CANCELLED, "enough")
            self.gone.add(stream)

    @rule(name=side_names, choice=choices, size=st.integers(1, 1500))
    def read(self, name: str, choice: int, size: int) -> None:
        side = self.side(name)
        unread = [stream for stream, unread in side.unread.items() if unread]
        for stream in unread[choice:][:1] or unread[:1]:
            side.read(stream, min(size, side.unread[stream]))

    @rule(name=side_names, choice=choices)
    def move_bulk(self, name: str, choice: int) -> None:
        """Write, and read at the other end in halves: what makes a window grow."""
        other = "agent" if name == "client" else "client"
        for size in (3000, 3000, 3000):
            self.write(name, choice, size)
            self.everything_moves()
            for _ in range(2):
                self.read(other, choice, size // 2)

    @rule(name=side_names, number=st.integers(0, 9))
    def status(self, name: str, number: int) -> None:
        self.side(name).session.send_status({"number": number})

    # --- the network ---

    @rule(choice=choices, limit=st.sampled_from(LIMITS))
    def push_up(self, choice: int, limit: int) -> None:
        self.wire(choice).push_up(limit)

    @rule(choice=choices, limit=st.sampled_from(LIMITS))
    def push_down(self, choice: int, limit: int) -> None:
        self.wire(choice).push_down(limit)

    @rule(choice=choices, size=st.sampled_from(SIZES))
    def deliver_up(self, choice: int, size: int | None) -> None:
        self.wire(choice).deliver_up(size)

    @rule(choice=choices, size=st.sampled_from(SIZES))
    def deliver_down(self, choice: int, size: int | None) -> None:
        self.wire(choice).deliver_down(size)

    @rule()
    def everything_moves(self) -> None:
        wire = self.link.wire
        if not wire.is_cut:
            wire.push_up()
            wire.push_down()
            wire.deliver_up()
            wire.deliver_down()

    @rule(choice=choices)
    def break_wire(self, choice: int) -> None:
        self.wire(choice).is_cut = True

    @rule(choice=choices, name=side_names)
    def notice(self, choice: int, name: str) -> None:
        wire = self.wire(choice)
        if wire.is_cut:
            wire.lose_down() if name == "client" else wire.lose_up()

    @rule(at_once=st.booleans())
    def dial(self, at_once: bool) -> None:
        wire = self.link.dial()
        if at_once:
            wire.deliver_up()
            wire.deliver_down()

    @rule(seconds=st.sampled_from(PAUSES))
    def wait(self, seconds: float) -> None:
        self.link.wait(seconds)

    # --- what must hold ---

    @invariant()
    def bytes_are_a_prefix(self) -> None:
        for name, other in (("client", "agent"), ("agent", "client")):
            for stream, data in self.side(name).received.items():
                assert len(data) <= self.taken[other, stream]
                assert data == pattern(stream, 0, len(data))

    @invariant()
    def buffers_keep_their_limits(self) -> None:
        for side, own in ((self.link.client, self.link.client_settings), (self.link.agent, self.link.table.settings)):
            session = side.session
            scheduler = session._scheduler
            assert session.unacknowledged <= own.replay_bytes + own.control_reserve
            kept = scheduler.replay._kept
            assert session.unacknowledged == sum(len(frame.header) + len(frame.payload) for frame in kept)
            assert len(scheduler._control) <= MAX_PENDING_CONTROL
            assert len(scheduler._credit) <= 8
            assert len(session._decoder._partial) <= HEADER_SIZE + max(MAX_CONTROL_PAYLOAD, own.limits.max_payload)
            for stream in session.streams._table._live.values():
                assert 0 <= stream.queue.size <= own.send_queue
                assert stream.unread == side.unread[stream.id]
                window = own.limits.window + stream.window_growth
                assert stream.allowance + stream.unread + stream.unreturned <= window
                assert window <= max(own.limits.window, own.max_window)
                assert stream.scheduled == stream.ready_to_send == (stream in [*scheduler._first, *scheduler._ready])
            live = session.streams._table._live.values()
            assert session.streams._window_growth == sum(stream.window_growth for stream in live)

    @invariant()
    def nobody_is_blamed(self) -> None:
        for side in (self.link.client, self.link.agent):
            assert side.over is None
            assert not side.breaches
            assert not {ResetCode.FLOW_CONTROL, ResetCode.PROTOCOL} & set(side.resets.values())

    def teardown(self) -> None:
        """Once the network works and everybody reads, everything arrives and everybody can continue."""
        if not hasattr(self, "link"):
            return
        sides = (self.link.client, self.link.agent)
        for side in sides:
            side.accept = side.consume = True
            for stream in side.opened:
                side.session.streams.accept(stream)
            side.read_all()
        assert isinstance(self.link.resume(), Attached)
        self.link.settle(self.buffers_keep_their_limits)
        self.bytes_are_a_prefix()
        self.nobody_is_blamed()
        gone = self.gone | set(self.link.client.resets) | set(self.link.agent.resets)
        for (name, stream), taken in self.taken.items():
            if stream not in gone:
                other = self.side("agent" if name == "client" else "client")
                assert taken == len(other.received[stream])
                assert ((name, stream) in self.ended) == (stream in other.ended)
        assert set(self.live("client")) == set(self.live("agent"))
        for name, other in (("client", "agent"), ("agent", "client")):
            session = self.side(name).session
            assert session.unacknowledged == 0
            for number in self.live(name):
                stream = session.streams._table.find(number)
                assert not stream.blocked
                assert stream.queue.size == 0
                assert stream.credit == self.side(other).session.streams._table.find(number).allowance


def walk(seed: int, steps: int) -> None:
    """Follow the same rules at random: no shrinking, but many more steps per second than Hypothesis takes."""
    rng = random.Random(seed)
    network = AnyNetwork()
    network.begin(client=_any_settings(rng), agent=_any_settings(rng))
    name = partial(rng.choice, ["client", "agent"])
    choice = partial(rng.randrange, 16)
    limit = partial(rng.choice, LIMITS)
    size = partial(rng.choice, SIZES)
    moves = {
        lambda: network.open(name()): 3,
        lambda: network.answer(name(), choice(), rng.choice([None, None, ResetCode.NOT_ALLOWED])): 3,
        lambda: network.write(name(), choice() % 3, rng.randint(1, 3000)): 12,
        lambda: network.end(name(), choice() % 3): 3,
        lambda: network.reset(name(), choice()): 1,
        lambda: network.read(name(), choice() % 3, rng.randint(1, 1500)): 10,
        lambda: network.move_bulk(name(), choice() % 3): 3,
        lambda: network.status(name(), choice()): 1,
        lambda: network.push_up(choice(), limit()): 8,
        lambda: network.push_down(choice(), limit()): 8,
        lambda: network.deliver_up(choice(), size()): 8,
        lambda: network.deliver_down(choice(), size()): 8,
        network.everything_moves: 8,
        lambda: network.break_wire(choice()): 1,
        lambda: network.notice(choice(), name()): 2,
        lambda: network.dial(rng.random() < 0.6): 2,
        lambda: network.wait(rng.choice(PAUSES)): 2,
    }
    for move in rng.choices(list(moves), list(moves.values()), k=steps):
        move()
        network.bytes_are_a_prefix()
        network.buffers_keep_their_limits()
    network.teardown()


def _any_settings(rng: random.Random) -> Settings:
    limits = Limits(max_payload=rng.choice(PAYLOADS), window=rng.choice(WINDOWS), max_streams=4)
    return small(
        limits,
        max_window=rng.choice(MAX_WINDOWS),
        replay_bytes=rng.choice(REPLAYS),
        send_queue=rng.choice(QUEUES),
        ack_bytes=rng.choice(ACK_BYTES),
        ack_frames=rng.choice(ACK_FRAMES),
    )


def for_some(examples: int) -> settings:
    return settings(max_examples=examples, stateful_step_count=40, suppress_health_check=list(HealthCheck))


TestAnyNetwork = AnyNetwork.TestCase
TestAnyNetwork.settings = for_some(200)


@pytest.mark.soak
class TestAnyNetworkForLong(AnyNetwork.TestCase):
    settings = for_some(6000)


BLOCKS = [*range(3), *(pytest.param(block, marks=pytest.mark.soak) for block in range(3, 10))]
"""Of these ten, `make test` takes three and `make soak` the others, at two hundred schedules each."""


@pytest.mark.parametrize("block", BLOCKS)
def test_random_walks(block: int) -> None:
    """Two thousand long random schedules lose, double and reorder nothing."""
    for seed in range(200):
        walk(block * 1_000_000 + seed, steps=150)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(10, 110))
def test_random_walks_for_long(block: int) -> None:
    """Two hundred thousand longer ones do not either."""
    for seed in range(2000):
        walk(block * 1_000_000 + seed, steps=300)

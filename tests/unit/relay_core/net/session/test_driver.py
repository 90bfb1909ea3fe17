"""Facts about two drivers that are joined without a network: what leaves when, and what waits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import pytest
import pytest_asyncio

from relay_core.errors import ConnectionLost
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import Sink
from tests.support.sessions.tunnel_link import connected

EPOCH = 1


class Wire:
    """A transport that hands over in the same call, if it has room."""

    def __init__(self) -> None:
        self.peer: Wire
        self.writes = 0
        self.room = asyncio.Event()
        self.room.set()
        self._deliver: Callable[[bytes], None]
        self._lost = asyncio.get_running_loop().create_future()

    async def deliver_to(self, receiver: Callable[[bytes], None]) -> None:
        self._deliver = receiver
        await self._lost

    @property
    def has_room(self) -> bool:
        return self.room.is_set() and not self._lost.done()

    def write(self, buffers: Iterable[bytes]) -> None:
        self.writes += 1
        self.peer._deliver(b"".join(buffers))

    async def drain(self) -> None:
        await self.room.wait()

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._lost.done():
            self._lost.set_exception(ConnectionLost("gone"))


class Pair:
    """The client's driver with its wire, and the agent's, which accepts every stream."""

    def __init__(self) -> None:
        link = connected(now=asyncio.get_running_loop().time())  # their clock is that of the loop
        self.accepted: list[SessionStream] = []
        self.client = SessionDriver(link.client.session)
        self.agent = SessionDriver(link.agent.session, on_open=self._accept)
        self.up, self.down = Wire(), Wire()
        self.up.peer, self.down.peer = self.down, self.up

    def _accept(self, stream: SessionStream, _event: object) -> None:
        self.agent.accept(stream)
        self.accepted.append(stream)

    def open(self) -> tuple[SessionStream, SessionStream]:
        """Return both ends of a new stream."""
        stream = self.client.open(1)
        return stream, self.accepted[-1]


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two drivers whose transports run."""
    pair = Pair()
    async with TaskSet() as tasks:
        tasks.spawn(pair.agent.run_transport(pair.down, EPOCH), name="agent")
        tasks.spawn(pair.client.run_transport(pair.up, EPOCH), name="client")
        for _ in range(5):
            await asyncio.sleep(0)
        yield pair
        for wire in (pair.up, pair.down):
            wire.abort()


async def test_bytes_leave_in_the_call_that_hands_them_over(pair: Pair) -> None:
    """While the transport has room, no turn of the event loop passes between the two ends."""
    stream, far_end = pair.open()
    sink = Sink()
    far_end.deliver_to(sink)
    writes = pair.up.writes
    stream.send(b"hello")
    assert [b"hello"] == sink.pieces
    assert writes + 1 == pair.up.writes


async def test_writes_are_joined(pair: Pair) -> None:
    """What several streams add in a block leaves in one write at its end, also where blocks are nested."""
    streams, far_ends = zip(*(pair.open() for _ in range(3)), strict=True)
    sinks = [Sink() for _ in far_ends]
    for far_end, sink in zip(far_ends, sinks, strict=True):
        far_end.deliver_to(sink)
    writes = pair.up.writes
    with pair.client.joining_writes():
        for stream in streams:
            with pair.client.joining_writes():
                stream.send(b"hello")
        assert [[]] * 3 == [sink.pieces for sink in sinks]
    assert [[b"hello"]] * 3 == [sink.pieces for sink in sinks]
    assert writes + 1 == pair.up.writes


async def test_without_room_bytes_wait_and_leave_together(pair: Pair) -> None:
    """What is handed over while the socket takes nothing leaves in one write as soon as it does."""
    stream, far_end = pair.open()
    pair.up.room.clear()
    for piece in (b"a", b"b", b"c"):
        stream.send(piece)
    writes = pair.up.writes
    reading = asyncio.ensure_future(far_end.read())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    pair.up.room.set()
    assert b"abc" == await reading
    assert writes + 1 == pair.up.writes


async def test_credit_comes_back_for_what_was_handed_over(pair: Pair) -> None:
    """Many windows pass through a handler that takes everything at once."""
    stream, far_end = pair.open()
    sink = Sink()
    far_end.deliver_to(sink)
    piece = bytes(64 * 1024)
    for _ in range(100):
        await stream.write(piece)
    while len(sink.data) < 100 * len(piece):  # a handler that takes long rests for a turn
        await asyncio.sleep(0)
    assert 100 * len(piece) == len(sink.data)


async def test_room_that_is_found_while_events_are_handed_out(pair: Pair) -> None:
    """What waited for room leaves as soon as there is some, without anybody asking again."""
    stream, far_end = pair.open()
    near, far = Sink(), Sink()
    stream.deliver_to(near)
    far_end.deliver_to(far)
    sent = bytes(range(256)) * 64 * 1024  # more than the window and the queue hold
    pair.up.room.clear()
    stream.send(sent)
    stream.send(b"end")
    stream.send_eof()
    assert ["paused"] == near.happened
    pair.up.room.set()
    while "eof" not in far.happened:
        await asyncio.sleep(0)
    assert sent + b"end" == far.data
    assert ["paused", "resumed"] == near.happened


async def test_an_ended_session_takes_nothing(pair: Pair) -> None:
    """Handler and writer learn why; bytes that are sent nevertheless are dropped, where nobody could catch an error."""
    stream, _ = pair.open()
    sink = Sink()
    stream.deliver_to(sink)
    pair.client.abort("over")
    stream.send(b"x")
    assert ["lost"] == sink.happened
    with pytest.raises(ConnectionLost, match="over"):
        await stream.write(b"x")


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancelled_goodbye_stays_cancelled(pair: Pair, turns: int) -> None:
    """Who is cancelled while it waits for the end of a session is cancelled, however close behind that comes."""
    pair.up.room.clear()
    closing = asyncio.ensure_future(pair.client.close("bye", within=DEADLINE))
    await asyncio.sleep(0)
    pair.client.abort("gone")
    for _ in range(turns):
        await asyncio.sleep(0)
    if closing.cancel():
        await asyncio.wait({closing})
        assert closing.cancelled()

"""Facts about two drivers that are joined without a network: what leaves when, and what waits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import pytest
import pytest_asyncio

from relay_core.errors import ConnectionLost
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.tasks import TaskSet
from tests.support.tunnel_link import connected

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
        link = connected()
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
    taken = []
    far_end.offer_to(lambda data: not taken.append(data))
    reading = asyncio.ensure_future(far_end.read())
    await asyncio.sleep(0)
    writes = pair.up.writes
    assert 5 == stream.write_some(b"hello")
    assert [b"hello"] == taken
    assert writes + 1 == pair.up.writes
    assert not reading.done()
    reading.cancel()


async def test_what_nobody_waits_for_is_kept(pair: Pair) -> None:
    """Bytes are offered to who waits in `read` only, and never past bytes that wait themselves."""
    stream, far_end = pair.open()
    taken = []
    far_end.offer_to(lambda data: data != b"1" and not taken.append(data))
    stream.write_some(b"0")
    assert b"0" == await far_end.read()
    reading = asyncio.ensure_future(far_end.read())
    await asyncio.sleep(0)
    stream.write_some(b"1")
    stream.write_some(b"2")
    assert [] == taken
    assert [b"1", b"2"] == [await reading, await far_end.read()]


async def test_without_room_bytes_wait_and_leave_together(pair: Pair) -> None:
    """What is handed over while the socket takes nothing leaves in one write as soon as it does."""
    stream, far_end = pair.open()
    pair.up.room.clear()
    for piece in (b"a", b"b", b"c"):
        assert 1 == stream.write_some(piece)
    writes = pair.up.writes
    reading = asyncio.ensure_future(far_end.read())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    pair.up.room.set()
    assert b"abc" == await reading
    assert writes + 1 == pair.up.writes


async def test_credit_comes_back_for_what_was_taken(pair: Pair) -> None:
    """Many windows pass through a reader that never wakes up."""
    stream, far_end = pair.open()
    size = 0

    def take(data: bytes) -> bool:
        nonlocal size
        size += len(data)
        return True

    far_end.offer_to(take)
    reading = asyncio.ensure_future(far_end.read())
    await asyncio.sleep(0)
    piece = bytes(64 * 1024)
    for _ in range(100):
        await stream.write(piece)
    assert 100 * len(piece) == size
    reading.cancel()


async def test_a_broken_stream_takes_nothing(pair: Pair) -> None:
    """`write_some` leaves the bad news to `write`."""
    stream, far_end = pair.open()
    far_end.abort("enough")
    assert 0 == stream.write_some(b"x")
    with pytest.raises(ConnectionLost, match="enough"):
        await stream.write(b"x")


async def test_an_ended_session_takes_nothing(pair: Pair) -> None:
    """Nor does it raise where nobody could catch it."""
    stream, _ = pair.open()
    pair.client.abort("over")
    assert 0 == stream.write_some(b"x")


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancelled_goodbye_stays_cancelled(pair: Pair, turns: int) -> None:
    """Who is cancelled while it waits for the end of a session is cancelled, however close behind that comes."""
    pair.up.room.clear()
    closing = asyncio.ensure_future(pair.client.close("bye", within=60))
    await asyncio.sleep(0)
    pair.client.abort("gone")
    for _ in range(turns):
        await asyncio.sleep(0)
    if closing.cancel():
        await asyncio.wait({closing})
        assert closing.cancelled()

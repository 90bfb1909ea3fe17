"""Facts about a stream of a session: pushing, pulling, and from one to the other."""

import asyncio
import tracemalloc

import pytest

from relay_core.errors import ConnectionLost, ProtocolError
from relay_core.net.session import stream
from relay_core.net.session.stream import SMALL
from tests.support.machine.streams import MemoryStream, Sink, stream_pair


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def sink_of(far: MemoryStream) -> Sink:
    """Return a new handler of a stream."""
    sink = Sink()
    far.deliver_to(sink)
    return sink


async def lost_while_paused(data: bytes) -> tuple[MemoryStream, Sink]:
    """Return a stream whose handler had paused reading when bytes and then the loss came."""
    ours, theirs = stream_pair()
    sink = sink_of(theirs)
    theirs.pause_reading()
    ours.send(data)
    ours.abort()
    await settle()
    assert (b"", []) == (sink.data, sink.happened)
    return theirs, sink


async def test_what_came_early_comes_first() -> None:
    """What came before there was a handler is handed over first, then what comes, then the end."""
    ours, theirs = stream_pair()
    ours.send(b"one ")
    assert b"one " == await theirs.read()
    ours.send(b"two ")
    await settle()
    sink = sink_of(theirs)
    assert b"two " == sink.data
    ours.send(b"three")
    ours.send_eof()
    await settle()
    assert (b"two three", ["eof"]) == (sink.data, sink.happened)


async def test_a_handler_that_takes_long_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After it, the next bytes wait for the next turn of the event loop, and the end waits for them."""
    monkeypatch.setattr(stream, "MAX_TURN", -1.0)
    ours, theirs = stream_pair()
    sink = sink_of(theirs)
    for data in (b"one ", b"two ", b"three"):
        theirs.deliver(data)
    theirs.deliver_eof()
    seen = [bytes(sink.data)]
    while not sink.happened:
        await asyncio.sleep(0)
        seen.append(bytes(sink.data))
    assert (b"one ", b"one two three", ["eof"]) == (seen[0], seen[-1], sink.happened)
    ours.abort()


async def test_detached_it_is_read() -> None:
    """Without a handler what comes waits for `read`."""
    ours, theirs = stream_pair()
    sink = sink_of(theirs)
    theirs.detach()
    ours.send(b"for the reader")
    assert b"for the reader" == await theirs.read()
    assert b"" == sink.data


@pytest.mark.parametrize("limit", [7, 8])
async def test_read_to_the_end(limit: int) -> None:
    """All bytes up to the end of the peer's direction are returned, unless there are more than the limit."""
    ours, theirs = stream_pair()
    ours.send(b"one ")
    ours.send(b"two ")
    ours.send_eof()
    if limit == 8:
        assert b"one two " == await theirs.read_all(limit, "the body")
    else:
        with pytest.raises(ProtocolError, match="^the body is too long$"):
            await theirs.read_all(limit, "the body")


async def test_a_paused_handler_stops_the_peer_after_one_window() -> None:
    """While the handler wants nothing the sender is paused when the window is full, and nothing is lost."""
    ours, theirs = stream_pair(window=1000)
    near, far = Sink(), Sink()
    ours.deliver_to(near)
    theirs.deliver_to(far)
    theirs.pause_reading()
    ours.send(bytes(600))
    ours.send(bytes(600))
    ours.send(b"last")
    ours.send_eof()
    await settle()
    assert (["paused"], 0) == (near.happened, len(far.data))
    theirs.resume_reading()
    await settle()
    assert (bytes(1200) + b"last", ["eof"]) == (far.data, far.happened)
    assert ["paused", "resumed"] == near.happened


async def test_a_handler_that_comes_late_is_paused() -> None:
    """A handler of a stream that cannot send on is paused at once."""
    ours, theirs = stream_pair(window=10)
    ours.send(bytes(20))
    sink = Sink()
    ours.deliver_to(sink)
    assert ["paused"] == sink.happened
    assert 10 == len(await theirs.read())
    assert 10 == len(await theirs.read())
    assert ["paused", "resumed"] == sink.happened


async def test_a_window_of_tiny_pieces_occupies_a_window() -> None:
    """Tiny pieces that nobody takes occupy about as much memory as they are long, and are read in order."""
    _, theirs = stream_pair()
    tracemalloc.start()
    try:
        for number in range(100_000):
            theirs.deliver(number.to_bytes(3, "big"))
        occupied, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 300_000 <= occupied < 2 * 300_000
    received = b""
    while len(received) < 300_000:
        received += await theirs.read()
    assert b"".join(number.to_bytes(3, "big") for number in range(100_000)) == received


async def test_large_pieces_stay_as_they_are() -> None:
    """A large piece is not copied, and keeps its place between tiny ones."""
    _, theirs = stream_pair()
    large = bytes(SMALL)
    for piece in (b"a", b"b", large, b"c", b"d"):
        theirs.deliver(piece)
    assert [b"ab", large, b"cd"] == [await theirs.read() for _ in range(3)]


async def test_a_write_waits_for_room() -> None:
    """Somebody who writes waits until everything has been taken."""
    ours, theirs = stream_pair(window=10)
    writing = asyncio.ensure_future(ours.write(bytes(25)))
    await settle()
    assert not writing.done()
    size = 0
    while size < 25:
        size += len(await theirs.read())
    await writing


async def test_a_loss_comes_behind_what_was_received() -> None:
    """The peer's last bytes are delivered before the loss, when the handler resumes reading."""
    theirs, sink = await lost_while_paused(b"last words")
    theirs.resume_reading()
    assert (b"last words", ["lost"]) == (sink.data, sink.happened)


async def test_who_still_writes_to_a_lost_stream_learns_it() -> None:
    """A handler that has paused reading and still writes is informed of the loss instead of blocking forever."""
    theirs, sink = await lost_while_paused(b"nobody takes this")
    theirs.send(b"hello?")
    assert (b"", ["lost"]) == (sink.data, sink.happened)


async def test_a_writer_is_woken_by_a_loss() -> None:
    """A write that waits for room ends with the stream."""
    ours, theirs = stream_pair(window=10)
    writing = asyncio.ensure_future(ours.write(bytes(25)))
    await settle()
    theirs.abort()
    with pytest.raises(ConnectionLost):
        await writing
    with pytest.raises(ConnectionLost):
        await ours.read()

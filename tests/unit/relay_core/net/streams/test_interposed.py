"""Facts about a stream with somebody in the middle."""

import asyncio
from collections.abc import Callable

import pytest

from relay_core.errors import ConnectionLost
from relay_core.net.streams.interposed import InterposedStream
from tests.support.streams import MemoryStream, stream_pair


class Shouter:
    """Passes capitals on to the local program, and all but '?' to the stream; each '?' is answered with '!'."""

    def __init__(self) -> None:
        self.seen = b""
        self.last = b""

    def arrived(self, data: bytes, now: float) -> bytes:
        return bytes(byte for byte in data if chr(byte).isupper())

    def written(self, data: bytes, now: float) -> tuple[bytes, bytes]:
        self.seen += data
        return data.replace(b"?", b""), b"!" * data.count(b"?")

    def arrived_end(self) -> bytes:
        last, self.last = self.last, b""
        return last

    def written_end(self) -> bytes:
        return b"."


class Narrow(MemoryStream):
    """Takes so many bytes at once, and offers what arrives."""

    room = 0
    take: Callable[[bytes], bool]

    def write_some(self, data: bytes) -> int:
        taken = data[: self.room]
        if taken:
            self.peer._incoming.put_nowait(taken)
        return len(taken)

    def offer_to(self, take: Callable[[bytes], bool]) -> None:
        self.take = take


class Local:
    """The writer of a local program."""

    def __init__(self) -> None:
        self.heard = b""

    def write(self, data: bytes) -> None:
        self.heard += data


def interposed(stream: MemoryStream) -> tuple[InterposedStream, Shouter, Local]:
    shouter, local = Shouter(), Local()
    middle = InterposedStream(stream, shouter)
    middle.inject_into(local)
    return middle, shouter, local


def narrow_pair() -> tuple[Narrow, MemoryStream]:
    near, far = Narrow(), MemoryStream()
    near.peer, far.peer = far, near
    far._incoming = asyncio.Queue()  # the test reads in the end
    return near, far


async def test_read_waits_for_something_to_tell():
    """What the interposer keeps is not an end."""
    near, far = stream_pair()
    middle, _, _ = interposed(near)
    await far.write(b"nothing")
    await far.write(b"aBc")
    assert await middle.read() == b"B"
    await far.write_eof()
    assert await middle.read() == b""
    assert await middle.read() == b""


async def test_what_was_kept_before_a_break():
    """What the interposer still has for the program comes before the news that the stream broke."""
    near, far = stream_pair()
    middle, shouter, _ = interposed(near)
    shouter.last = b"LAST"
    far.abort()
    assert await middle.read() == b"LAST"
    near._incoming.put_nowait(None)
    with pytest.raises(ConnectionLost):
        await middle.read()


async def test_word_of_its_own_waits_for_its_turn():
    """It is written at once while the program waits for bytes, and else after those that the program has just got."""
    near, far = stream_pair()
    middle, _, local = interposed(near)
    await middle.write(b"?")
    assert local.heard == b"!"
    await far.write(b"A")
    assert await middle.read() == b"A"
    await middle.write(b"?")
    assert local.heard == b"!"
    assert await middle.read() == b"!"


@pytest.mark.parametrize("room", [0, 1, 3, 100])
async def test_bytes_without_room_are_seen_once(room):
    """Where the stream is full, the interposer sees nothing twice, and every byte goes on once."""
    near, far = narrow_pair()
    middle, shouter, local = interposed(near)
    near.room = room
    data = b"ab?cd"
    if (sent := middle.write_some(data)) < len(data):
        await middle.write(data[sent:])
    await middle.write(b"ef")
    await middle.write_eof()
    received = b""
    while part := await far.read():
        received += part
    assert (received, shouter.seen, local.heard) == (b"abcdef.", b"ab?cdef", b"!")


async def test_offer():
    """What the program takes has gone through the interposer; what it does not take is not seen."""
    near, _ = narrow_pair()
    middle, _, _ = interposed(near)
    taken: list[bytes] = []
    open_ = True

    def take(data: bytes) -> bool:
        if open_:
            taken.append(data)
        return open_

    middle.offer_to(take)
    assert near.take(b"xYz")
    assert b"".join(taken) == b"Y"
    open_ = False
    assert not near.take(b"Z")

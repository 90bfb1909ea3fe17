"""Facts about the editor's end of a connection to a rank, when the editor is in this program."""

import asyncio

from relay_client.ports.all_ranks import RankLink
from tests.support.machine.deadline import DEADLINE


class Carrier:
    """What carries the connection: it notes what it is given."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def local_data(self, data: bytes) -> None:
        self.seen.append(data)

    def local_eof(self) -> None:
        self.seen.append("eof")

    def local_lost(self, error: Exception | None) -> None:
        self.seen.append("lost")

    def local_writing_paused(self) -> None:
        self.seen.append("paused")

    def local_writing_resumed(self) -> None:
        self.seen.append("resumed")


async def test_what_is_sent_waits_for_a_carrier() -> None:
    """Bytes and the end that nobody has taken yet reach the carrier that comes, in order, and none twice."""
    link, first, second = RankLink(lambda _data: None, lambda: None), Carrier(), Carrier()
    link.send(b"a")
    link.deliver_to(first)
    link.detach()
    link.send(b"b")
    link.end()
    link.deliver_to(second)
    assert ([b"a"], [b"b", "eof"]) == (first.seen, second.seen)


async def test_a_full_stream_is_not_sent_more() -> None:
    """While the carrier has paused reading, bytes are kept."""
    link, carrier = RankLink(lambda _data: None, lambda: None), Carrier()
    link.deliver_to(carrier)
    link.pause_reading()
    link.send(b"a")
    assert [] == carrier.seen
    link.resume_reading()
    assert [b"a"] == carrier.seen


async def test_what_is_received_arrives_in_a_later_turn() -> None:
    """Bytes, and the end after them, reach the session once the carrier has returned to the event loop."""
    seen: asyncio.Queue[object] = asyncio.Queue()
    link = RankLink(seen.put_nowait, lambda: seen.put_nowait("end"))
    link.write(b"a")
    link.write(b"b")
    link.write_eof()
    assert seen.empty()
    assert [b"ab", "end"] == [await asyncio.wait_for(seen.get(), DEADLINE) for _ in range(2)]


async def test_a_slow_editor_pauses_the_rank() -> None:
    """The carrier that is there, and one that comes later, are paused until the editor catches up."""
    link, first, second = RankLink(lambda _data: None, lambda: None), Carrier(), Carrier()
    link.deliver_to(first)
    link.pause()
    link.deliver_to(second)
    link.resume()
    assert (["paused"], ["paused", "resumed"]) == (first.seen, second.seen)

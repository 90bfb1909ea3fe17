import asyncio

from relay_core.ws.frames import PONG, close_payload, encode_frame
from relay_server.config.model import Limits
from relay_server.connection.websocket import WebSocket
from tests.support.network.raw_websocket import PING, frame


class FakeConnection:
    """Takes what is written and can be slow."""

    def __init__(self):
        self.handler = None
        self.remote = ("test", 1)
        self.written = []
        self.writing_paused = self.reading_paused = self.closed = False
        self.buffered = 0

    def write(self, data):
        self.written.append(data)

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = True


class FakeOwner:
    """Remembers the calls that it receives."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda websocket, *details: self.calls.append((name, *details))


def make(**options):
    connection, owner = FakeConnection(), FakeOwner()
    return connection, owner, WebSocket(connection, owner, Limits(**options))


async def test_a_peer_that_pings_and_does_not_read_costs_one_pong():
    """While a peer takes nothing only its latest ping is remembered, and answered when it reads again."""
    connection, owner, websocket = make()
    connection.writing_paused = True
    for number in range(1000):
        websocket.received(memoryview(frame(PING, b"%d" % number)))
    assert [] == connection.written
    connection.writing_paused = False
    websocket.writing_resumed()
    websocket.writing_resumed()
    assert [encode_frame(PONG, b"999")] == connection.written
    assert [("writing_resumed",)] * 2 == owner.calls
    websocket.lost()


async def test_nothing_follows_our_close():
    """After a Close neither data, pongs nor a second Close go out."""
    connection, _, websocket = make()
    websocket.send_close(close_payload(1000))
    websocket.send_close(close_payload(1001))
    websocket.send_message(1, b"late")
    websocket.send_chunks([])
    websocket.received(memoryview(frame(PING, b"?")))
    assert 1 == len(connection.written)
    websocket.lost()


async def test_the_end_is_reported_once():
    """A breach of the protocol and the later end of the connection are one loss."""
    connection, owner, websocket = make()
    websocket.received(memoryview(b"\x81\x00"))
    websocket.lost()
    assert [("lost",)] == owner.calls
    assert connection.closed


async def test_a_peer_that_is_held_up_by_us_is_not_judged():
    """Whoever is not read from, or takes nothing at the moment, is neither pinged nor dropped."""
    connection, _, _ = make(ping_interval=0.01, ping_timeout=0.01)
    connection.buffered = 1
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert ([], False) == (connection.written, connection.closed)
    connection.buffered, connection.reading_paused = 0, True
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert ([], False) == (connection.written, connection.closed)
    connection.reading_paused = False
    while not connection.closed:
        await asyncio.sleep(0.01)
    assert encode_frame(PING, b"") == connection.written[0]


async def test_a_close_ends_one_direction():
    """A Close that was sent leaves the other direction open."""
    websocket = make()[2]
    websocket.send_close(b"")
    assert (True, False) == (websocket.close_sent, websocket.close_received)
    websocket.lost()

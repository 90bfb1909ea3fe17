"""Facts about an open websocket and its transport."""

import asyncio
from socket import socketpair

import pytest

from relay_core.errors import ConnectionLost
from relay_core.net.websocket.connection import UNREAD_HIGH, WebSocket
from relay_core.ws.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    FrameDecoder,
    Pong,
    close_payload,
    encode_frame,
    encode_message,
)
from tests.support.machine.deadline import DEADLINE


class Socket(asyncio.Transport):
    """Keeps what is written, and plays the peer."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        pass

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def say(self, data: bytes) -> None:
        self.protocol.get_buffer(len(data))[: len(data)] = data
        self.protocol.buffer_updated(len(data))


class EndedSocket(Socket):
    """That of TLS in Python 3.11.0 to 3.11.2, when it has ended."""

    def abort(self) -> None:
        raise AttributeError("'NoneType' object has no attribute '_abort'")


async def test_what_has_ended_is_not_aborted() -> None:
    """A websocket that has ended leaves its socket alone, which need not take an abort any more."""
    websocket = WebSocket(EndedSocket())
    websocket.connection_lost(None)
    websocket.abort()


async def test_nothing_is_written_after_a_failed_write(caplog: pytest.LogCaptureFixture) -> None:
    """After a write has failed, further messages are dropped, about which asyncio would otherwise log a warning."""
    near, far = socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=near)
    websocket = WebSocket(transport)
    lost = asyncio.Event()
    websocket.deliver_to(lambda _: None, lost=lambda _: lost.set())
    far.close()
    for _ in range(10):
        websocket.write(b"message")
    assert not websocket.has_room
    await asyncio.wait_for(lost.wait(), DEADLINE)
    assert [] == caplog.messages


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancelled_close_stays_cancelled(turns: int) -> None:
    """Who is cancelled while it waits for the peer's goodbye is cancelled, however close behind that comes."""
    socket = Socket()
    closing = asyncio.ensure_future(WebSocket(socket).close())
    await asyncio.sleep(0)
    socket.protocol.connection_lost(None)
    for _ in range(turns):
        await asyncio.sleep(0)
    if closing.cancel():
        await asyncio.wait({closing})
        assert closing.cancelled()


async def test_delivery_begins_with_what_is_there() -> None:
    """Bytes received before `deliver_to` are delivered first, as one piece; later bytes immediately."""
    socket, received = Socket(), []
    websocket = WebSocket(socket, early=encode_message(BINARY, b"early "))
    socket.say(encode_message(BINARY, b"bird"))
    websocket.deliver_to(received.append, lost=pytest.fail)
    assert [b"early bird"] == received
    socket.say(encode_message(BINARY, b"worm") + encode_frame(BINARY, b""))
    assert [b"early bird", b"worm"] == received


async def test_a_receiver_ends_the_pause() -> None:
    """Paused reading resumes as soon as the unread bytes are taken."""
    socket, received = Socket(), []
    websocket = WebSocket(socket)
    for _ in range(UNREAD_HIGH // 0x8000 + 1):
        socket.say(encode_message(BINARY, bytes(0x8000)))
    assert not socket.reading
    websocket.deliver_to(received.append, lost=pytest.fail)
    assert socket.reading
    assert UNREAD_HIGH + 0x8000 == len(received[0])


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
async def test_the_end_is_reported_to_the_receiver(before: bool) -> None:
    """The peer's Close is reported once, with its code, also if it was received before `deliver_to`."""
    socket, lost = Socket(), []
    websocket = WebSocket(socket)
    goodbye = encode_frame(CLOSE, close_payload(1001, "restart"))

    def end() -> None:
        socket.say(goodbye)
        socket.protocol.connection_lost(None)

    if before:
        end()
    websocket.deliver_to(lambda _data: None, lost=lost.append)
    if not before:
        end()
    assert [(1001, "restart")] == [(error.code, error.reason) for error in lost]


async def test_nothing_is_written_after_the_goodbye() -> None:
    """After a Close, messages are dropped and `has_room` is False."""
    socket = Socket()
    websocket = WebSocket(socket)
    websocket.write(b"in time")
    socket.say(encode_frame(CLOSE, close_payload(1000)))
    assert not websocket.has_room
    websocket.write(b"too late")
    chunk, *others = FrameDecoder().feed(socket.sent)
    assert b"in time" == chunk.payload
    assert [1000] == [event.code for event in others]
    with pytest.raises(ConnectionLost):
        await websocket.drain()


async def test_room_comes_and_goes() -> None:
    """`drain` waits while the socket takes no more, and ends with the socket."""
    socket = Socket()
    websocket = WebSocket(socket)
    await websocket.drain()
    socket.protocol.pause_writing()
    assert not websocket.has_room
    draining = asyncio.ensure_future(websocket.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    socket.protocol.resume_writing()
    await draining
    socket.protocol.pause_writing()
    draining = asyncio.ensure_future(websocket.drain())
    await asyncio.sleep(0)
    socket.protocol.connection_lost(None)
    with pytest.raises(ConnectionLost):
        await draining


async def test_a_message_without_end_is_refused_while_it_arrives() -> None:
    """A message that exceeds its limit ends the websocket with 1009 at once, and not when the message is complete."""
    socket = Socket()
    websocket = WebSocket(socket)
    socket.say(encode_frame(TEXT, b"x" * 600, fin=False))
    receiving = asyncio.ensure_future(websocket.receive(limit=1000))
    await asyncio.sleep(0)
    socket.say(encode_frame(CONTINUATION, b"x" * 600, fin=False))
    with pytest.raises(ConnectionLost) as lost:
        await receiving
    assert (1009, "a message is longer than 1000 bytes") == (lost.value.code, lost.value.reason)
    assert lost.value.closed_here


@pytest.mark.parametrize(
    ("data", "closed_here"),
    [
        (encode_frame(CONTINUATION, b""), True),
        (encode_frame(TEXT, b"\xff"), True),
        (encode_frame(CLOSE, close_payload(1009, "too long")), False),
        (b"", False),
    ],
    ids=["violation", "no text", "Close of the peer", "no Close"],
)
async def test_who_has_closed_it(data: bytes, closed_here: bool) -> None:
    """The error states whether this side has closed the websocket because of what the peer sent."""
    socket = Socket()
    websocket = WebSocket(socket)
    receiving = asyncio.ensure_future(websocket.receive())
    socket.say(data)
    await asyncio.sleep(0)
    socket.abort()
    with pytest.raises(ConnectionLost) as lost:
        await receiving
    assert closed_here == lost.value.closed_here


async def test_an_orderly_close_without_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that does not answer our Close in time has not caused it."""
    monkeypatch.setattr("relay_core.net.websocket.connection.CLOSE_TIMEOUT", 0.05)
    socket = Socket()
    websocket = WebSocket(socket)
    await websocket.close()
    with pytest.raises(ConnectionLost) as lost:
        await websocket.receive()
    assert (1000, False) == (lost.value.code, lost.value.closed_here)


async def test_a_message_of_its_limit_is_received() -> None:
    """A message in pieces is received up to and including its limit."""
    socket = Socket()
    websocket = WebSocket(socket)
    socket.say(encode_frame(TEXT, b"x" * 600, fin=False) + encode_frame(CONTINUATION, b"y" * 400))
    assert "x" * 600 + "y" * 400 == await websocket.receive(limit=1000)


@pytest.mark.parametrize("payload", [b"", b"x"], ids=["empty", "one byte"])
async def test_tiny_frames_count_with_what_they_occupy(payload: bytes) -> None:
    """A peer that sends tiny frames nobody asks for is not read any more long before they fill the memory."""
    socket = Socket()
    WebSocket(socket)
    frame = encode_frame(BINARY, payload)
    for _ in range(4):
        socket.say(frame * 1000)
    assert not socket.reading


async def test_pongs_wait_for_a_peer_that_takes_nothing() -> None:
    """Pings of a peer that reads nothing are answered once, with the newest, when it reads again."""
    socket = Socket()
    websocket = WebSocket(socket)
    socket.protocol.pause_writing()
    for number in range(1000):
        socket.say(encode_frame(PING, b"%d" % number))
    assert b"" == socket.sent
    socket.protocol.resume_writing()
    assert [Pong(b"999")] == FrameDecoder().feed(socket.sent)
    websocket.abort()

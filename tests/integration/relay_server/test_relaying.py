"""The pipe between the two sides, seen from both ends."""

import asyncio
import contextlib

import pytest

from relay_core.ws.frames import MAX_PAYLOAD
from relay_server.connection.tcp import READ_BYTES, WRITE_HIGH_WATER
from tests.integration.relay_server.waiting import eventually
from tests.support.network.raw_websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame, frame


@pytest.fixture(params=["to the listener", "to the sender"])
async def ends(request, relay):
    """Two ends of a relayed connection, in either order: what holds for one direction holds for the other."""
    sender, listener = await relay.pair()
    return (sender, listener) if request.param == "to the listener" else (listener, sender)


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
async def test_messages_keep_type_and_content(ends, opcode, size):
    """Text stays text, binary stays binary, and an empty message arrives."""
    one, other = ends
    await one.send(opcode, b"\xc3\xa4"[:size] * (size // 2 or 1))
    await one.send(BINARY, b"next")
    assert (opcode, b"\xc3\xa4"[:size] * (size // 2 or 1)) == await other.read_message()
    assert (BINARY, b"next") == await other.read_message()


async def test_a_large_frame_is_cut_into_short_ones(ends):
    """1 MiB in one frame arrives as one message in frames of at most 32 KiB."""
    one, other = ends
    payload = bytes(range(256)) * 4096
    await one.send(BINARY, payload)
    received, first = bytearray(), True
    while True:
        got = await other.read_frame()
        assert (BINARY if first else CONTINUATION) == got.opcode
        assert len(got.payload) <= MAX_PAYLOAD
        received, first = received + got.payload, False
        if got.fin:
            break
    assert payload == received


async def test_fragments_stay_one_message(ends):
    """A message in three frames, one of them empty, with a ping in between, arrives as one message."""
    one, other = ends
    await one.send(TEXT, b"one ", fin=False)
    await one.send(PING, b"between")
    await one.send(CONTINUATION, b"", fin=False)
    await one.send(CONTINUATION, b"two")
    assert (TEXT, b"one two") == await other.read_message()
    assert Frame(PONG, b"between") == await one.read_frame()


async def test_frames_may_arrive_byte_by_byte(ends):
    """How TCP cuts the stream does not matter."""
    one, other = ends
    for byte in frame(TEXT, b"slow", mask=b"abcd") + frame(BINARY, b""):
        await one.send_raw(bytes([byte]))
    assert (TEXT, b"slow") == await other.read_message()
    assert (BINARY, b"") == await other.read_message()


async def test_many_messages_in_one_packet_stay_apart(ends):
    """Boundaries survive batching."""
    one, other = ends
    await one.send_raw(b"".join(frame(BINARY, b"%d" % number) for number in range(1000)))
    assert [b"%d" % number for number in range(1000)] == [(await other.read_message())[1] for _ in range(1000)]


async def test_pings_are_answered_by_the_relay_and_not_passed_on(ends):
    """Ping and pong are hop by hop."""
    one, other = ends
    await one.send(PING, b"are you there")
    assert Frame(PONG, b"are you there") == await one.read_frame()
    await one.send(PONG, b"unasked")
    await one.send(TEXT, b"first thing the other end sees")
    assert (TEXT, b"first thing the other end sees") == await other.read_message()


async def test_a_close_ends_one_direction_only(ends):
    """The other direction continues after a Close, and ends with its own Close, code and reason."""
    one, other = ends
    await one.send_close(1000, "done")
    close = await other.read_frame()
    assert (CLOSE, 1000, "done") == (close.opcode, close.code, close.reason)
    await other.send(BINARY, b"x" * 100_000)
    assert (BINARY, b"x" * 100_000) == await one.read_message()
    await other.send_close(4001, "me too")
    close = await one.read_frame()
    assert (CLOSE, 4001, "me too") == (close.opcode, close.code, close.reason)
    assert b"" == await one.read_until_end()
    assert b"" == await other.read_until_end()


async def test_a_close_without_a_code_stays_without_one(ends):
    """An empty Close is passed on empty."""
    one, other = ends
    await one.send(CLOSE)
    assert Frame(CLOSE, b"") == await other.read_frame()


async def test_both_closes_may_cross(ends):
    """Two Closes at once end the connection once."""
    one, other = ends
    await asyncio.gather(one.send_close(1000, "a"), other.send_close(1000, "b"))
    assert "b" == (await one.read_frame()).reason
    assert "a" == (await other.read_frame()).reason
    assert b"" == await one.read_until_end()
    assert b"" == await other.read_until_end()


async def test_what_comes_after_a_close_is_ignored(ends):
    """What a side sends after its Close reaches nobody."""
    one, other = ends
    await one.send_close()
    await one.send(TEXT, b"too late")
    assert CLOSE == (await other.read_frame()).opcode
    await other.send_close()
    assert b"" == await other.read_until_end()


async def test_a_side_that_dies_takes_the_other_with_it(ends, relay):
    """Without a Close from one side the other's connection breaks, without a Close as well."""
    one, other = ends
    one.abort()
    assert b"" == await other.read_until_end()
    await eventually(lambda: relay.server.metrics().active_senders == 0)


async def test_a_side_that_leaves_after_its_close_lets_the_other_finish(ends, relay):
    """A client that does not wait for the answering Close breaks nothing: the other end closes in order."""
    one, other = ends
    await one.send_close(1000, "bye")
    assert "bye" == (await other.read_frame()).reason
    one.abort()
    await other.send(TEXT, b"to nobody")
    await other.send_close(1000)
    assert b"" == await other.read_until_end()
    await eventually(lambda: relay.server.metrics().active_senders == 0)


async def test_a_close_that_is_never_answered_is_not_waited_for_forever(start_relay):
    """After close_timeout both connections are dropped."""
    relay = await start_relay(limits={"close_timeout": 0.05})
    one, other = await relay.pair()
    await one.send_close()
    assert CLOSE == (await other.read_frame()).opcode
    assert b"" == await other.read_until_end()
    assert b"" == await one.read_until_end()


@pytest.mark.parametrize(
    "wrong",
    [b"\x81\x00", frame(0x3), frame(TEXT, b"", reserved=0x40), frame(PING, b"", fin=False), frame(CLOSE, b"\x00")],
    ids=["unmasked", "opcode", "reserved bit", "fragmented ping", "bad close"],
)
async def test_a_side_that_breaks_the_protocol_gets_1002_and_the_other_is_dropped(ends, wrong):
    """The offender gets a Close with 1002, the other end a broken connection."""
    one, other = ends
    await one.send_raw(wrong)
    close = await one.read_frame()
    assert (CLOSE, 1002) == (close.opcode, close.code)
    assert b"" == await other.read_until_end()


async def test_an_agreed_extension_may_use_its_bits(relay):
    """The listener's word is copied into both 101s, and RSV1 passes with the first frame."""
    agreed = [("Sec-WebSocket-Extensions", "permessage-deflate; server_no_context_takeover")]
    sender, listener = await relay.pair(sender={"extra": agreed}, listener={"headers": agreed})
    assert {agreed[0][1]} == {side.answered.headers["sec-websocket-extensions"] for side in (sender, listener)}
    await sender.send(BINARY, b"z" * (MAX_PAYLOAD + 1), reserved=0x40)
    assert [0x40, 0] == [(await listener.read_frame()).reserved for _ in range(2)]


async def test_idle_peers_are_pinged_and_live_ones_stay(start_relay):
    """A client that answers pings stays connected over many ping intervals."""
    relay = await start_relay(limits={"ping_interval": 0.02, "ping_timeout": 1.0})
    sender, listener = await relay.pair()
    for side in (sender, listener, sender, listener):
        ping = await side.read_frame()
        assert PING == ping.opcode
        await side.send(PONG, ping.payload)
    await sender.send(TEXT, b"alive")
    assert (TEXT, b"alive") == await listener.read_message()


async def test_a_peer_that_answers_no_ping_is_dropped(start_relay):
    """A silent side counts as dead, and its death is passed on."""
    relay = await start_relay(limits={"ping_interval": 0.02, "ping_timeout": 0.05})
    sender, listener = await relay.pair()

    async def answer_pings():
        while True:
            if (await listener.read_frame()).opcode == PING:
                await listener.send(PONG)

    with pytest.raises((asyncio.IncompleteReadError, OSError)):
        await answer_pings()
    assert set(await sender.read_until_end()) <= {0x80 | PING, 0}


async def test_a_slow_reader_bounds_what_the_relay_holds(relay):
    """The relay stops reading when the other end takes nothing, holds little, and loses nothing."""
    sender, listener = await relay.pair(listener={"receive_buffer": 8192})
    payload, count = bytes(range(256)) * 256, 512
    sending = asyncio.create_task(sender.send_raw(frame(BINARY, payload) * count))
    connections = relay.server._connections
    await eventually(lambda: any(connection.reading_paused for connection in connections))
    assert relay.server.metrics().buffered_bytes <= WRITE_HIGH_WATER + 2 * READ_BYTES
    assert relay.server.metrics().bytes_to_listeners < len(payload) * count
    for _ in range(count):
        assert (BINARY, payload) == await listener.read_message()
    await sending
    assert not any(connection.reading_paused for connection in connections)


async def test_a_slow_reader_does_not_slow_the_other_direction(relay):
    """Back-pressure is per direction: a side whose peer is stalled still receives."""
    sender, listener = await relay.pair(listener={"receive_buffer": 8192})
    sending = asyncio.create_task(sender.send_raw(frame(BINARY, b"x" * 65536) * 512))
    await eventually(lambda: any(connection.reading_paused for connection in relay.server._connections))
    await listener.send(TEXT, b"the other way")
    assert (TEXT, b"the other way") == await sender.read_message()
    listener.abort()
    with contextlib.suppress(OSError):
        await sending


async def test_a_stalled_side_that_dies_lets_go_of_the_other(relay):
    """A paused connection is dropped too when its other end breaks."""
    sender, listener = await relay.pair(listener={"receive_buffer": 8192})
    sender.writer.write(frame(BINARY, b"x" * 65536) * 512)
    await eventually(lambda: any(connection.reading_paused for connection in relay.server._connections))
    listener.abort()
    await eventually(lambda: relay.server.metrics().active_senders == 0)
    assert b"" == await sender.read_until_end()

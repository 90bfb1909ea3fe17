"""Facts about one end of a WebSocket, without sockets: two of them talk to each other here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.ws.frames import BINARY, MAX_PAYLOAD, PING, PONG, TEXT, Chunk, Close, Violation, close_payload
from relay_core.ws.frames import encode_frame as frame
from relay_core.ws.machine import WebSocketMachine

INTERVAL, TIMEOUT, CLOSING = 20.0, 10.0, 5.0
MASK = b"\x01\x02\x03\x04"


def client(**options):
    options = {"close_timeout": CLOSING, "new_mask": lambda: MASK} | options
    return WebSocketMachine(now=0.0, ping_interval=INTERVAL, ping_timeout=TIMEOUT, **options)


def server(**options):
    options = {"close_timeout": CLOSING} | options
    return WebSocketMachine(now=0.0, ping_interval=INTERVAL, ping_timeout=TIMEOUT, **options)


def payload(received):
    return b"".join(chunk.payload for chunk in received[0])


@given(st.binary(max_size=3 * MAX_PAYLOAD), st.lists(st.integers(1, 50_000), max_size=5))
def test_messages_arrive_however_they_are_cut(message, cuts):
    """What one side sends the other receives, in both directions."""
    for sender, receiver in ((client(), server()), (server(), client())):
        data, received = sender.send_message(BINARY, message), b""
        for size in [*cuts, len(data)]:
            piece, data = data[:size], data[size:]
            received += payload(receiver.receive_data(piece, 1.0))
        assert message == received


def test_only_a_client_masks():
    """Each frame of a client gets a mask of its own, and a server refuses one without."""
    assert MASK in client().send_message(TEXT, b"hello")
    assert server().send_message(TEXT, b"hello") == frame(TEXT, b"hello")
    chunks, end = server().receive_data(frame(TEXT, b"hello"), 1.0)
    assert ([], Violation) == (chunks, type(end))


def test_a_server_sends_pieces_of_messages():
    """Pieces of messages are forwarded as pieces."""
    relay, listener = server(), client()
    pieces = [Chunk(BINARY, b"one", fin=False), Chunk(0, b"two", fin=True)]
    assert pieces == listener.receive_data(relay.send_chunks(pieces), 1.0)[0]


def test_the_latest_ping_is_answered():
    """Several pings in a row are answered once, when the driver can send; after that, nothing is pending."""
    machine = client()
    for number in range(1000):
        machine.receive_data(frame(PING, b"%d" % number), 1.0)
    answer = server().receive_data(machine.data_to_send(), 1.0)
    assert ([], None) == answer
    assert b"" == machine.data_to_send()
    relay = server()
    relay.receive_data(b"\x89\x80" + MASK, 1.0)
    assert frame(PONG, b"") == relay.data_to_send()


def test_nothing_follows_a_close():
    """After our Close neither messages, pings, pongs nor a second Close leave, and the first one counts."""
    relay = server(close_timeout=2000.0)
    assert frame(8, close_payload(1000)) == relay.send_close(close_payload(1000), 1.0)
    relay.receive_data(b"\x89\x80" + MASK, 1.0)
    assert b"" == relay.send_close(close_payload(1001), 1.0)
    assert [b""] * 3 == [relay.send_message(TEXT, b"late"), relay.send_chunks([]), relay.data_to_send()]
    relay.tick(1000.0, held_up=False)
    assert (b"", False, 1000) == (relay.data_to_send(), relay.is_dead, relay.close_sent.code)


def test_a_close_of_the_peer_is_the_last_thing_received():
    """It is reported after the messages before it, and nothing after it is decoded."""
    relay, machine = server(), client()
    data = relay.send_message(BINARY, b"last") + relay.send_close(close_payload(1001, "restart"), 1.0)
    received = machine.receive_data(data + frame(BINARY, b"late"), 1.0)
    assert b"last" == payload(received)
    assert isinstance(received[1], Close)
    assert (1001, "restart") == (machine.close_received.code, machine.close_received.reason)
    assert ([], None) == machine.receive_data(frame(BINARY, b"later"), 1.0)


def test_a_silent_peer_is_pinged_and_then_dead():
    """Silence leads to a ping, and silence after the ping to the end of the connection."""
    machine = server()
    assert INTERVAL == machine.next_deadline()
    machine.tick(INTERVAL - 1, held_up=False)
    assert b"" == machine.data_to_send()
    machine.tick(INTERVAL, held_up=False)
    assert (frame(PING, b""), INTERVAL + TIMEOUT) == (machine.data_to_send(), machine.next_deadline())
    machine.tick(INTERVAL + TIMEOUT, held_up=False)
    assert machine.is_dead


@pytest.mark.parametrize("sign", [frame(PONG, b""), frame(BINARY, b"x")])
def test_any_sign_of_life_counts(sign):
    """Any data after a ping proves that the peer is alive; the next ping follows after the same time of silence."""
    machine = client()
    machine.tick(INTERVAL, held_up=False)
    machine.data_to_send()
    machine.receive_data(sign, INTERVAL + 1)
    machine.tick(INTERVAL + TIMEOUT, held_up=False)
    assert (False, b"", 2 * INTERVAL + 1) == (machine.is_dead, machine.data_to_send(), machine.next_deadline())


def test_a_peer_that_is_held_up_is_not_judged():
    """A peer that is held up is neither pinged nor considered dead, and gets a full interval after that."""
    machine = client()
    machine.tick(INTERVAL, held_up=True)
    assert (b"", 2 * INTERVAL) == (machine.data_to_send(), machine.next_deadline())
    machine.tick(2 * INTERVAL, held_up=False)
    assert machine.data_to_send()
    machine.tick(2 * INTERVAL + TIMEOUT, held_up=True)
    assert not machine.is_dead
    machine.reading_resumed(100.0)
    assert 100.0 + INTERVAL == machine.next_deadline()


def test_a_peer_has_so_long_to_end_the_connection():
    """After our Close only the time limit of the closing handshake applies, if there is one."""
    machine = client()
    machine.send_close(close_payload(1000), 3.0)
    assert 3.0 + CLOSING == machine.next_deadline()
    machine.tick(3.0 + CLOSING - 0.1, held_up=True)
    assert not machine.is_dead
    machine.tick(3.0 + CLOSING, held_up=True)
    assert machine.is_dead


def test_a_message_of_a_client_may_be_sent_in_parts():
    """Each part is a frame, and only the last one ends the message; nothing follows a Close."""
    machine, relay = client(), server()
    frames = machine.send_message(BINARY, b"one", fin=False) + machine.send_message(0, b"", fin=True)
    assert [Chunk(BINARY, b"one", fin=False), Chunk(0, b"", fin=True)] == relay.receive_data(frames, 1.0)[0]
    machine.send_close(close_payload(1000), 1.0)
    assert b"" == machine.send_message(BINARY, b"late", fin=True)

"""Facts about bytes that are kept until a peer answers."""

import pytest

from relay_client.ports.layers import MAX_EARLY_BYTES, EarlyBytes
from relay_core.layers.layer import Abort, EndLocal, EndPeer, ResetLocal, ToLocal, ToPeer
from tests.support.sessions.layers import Alone


@pytest.fixture
def committed():
    return []


@pytest.fixture
def early(committed):
    alone = Alone(EarlyBytes(lambda: committed.append(True), bytes))
    alone.layer.has_stream = True
    return alone


def test_early_bytes_are_sent_again(early, committed):
    """Until there is an answer, a new stream begins with all that was sent."""
    assert [] == early.start(0)
    assert [ToPeer(b"one")] == early.receive_local(b"one", 0)
    assert [ResetLocal()] == early.receive_peer_lost(0)
    assert [ToPeer(b"one")] == early.start(1)
    assert [ToPeer(b"two")] == early.receive_local(b"two", 1)
    assert [ToPeer(b"onetwo")] == early.start(2)
    assert (6, []) == (len(early.layer), committed)


def test_an_answer_ends_it(early, committed):
    """Once something comes back nothing is kept, and the layer is no longer needed."""
    early.receive_local(b"one", 0)
    assert [ToLocal(b"answer")] == early.receive_peer(b"answer", 0)
    assert [ToLocal(b"more")] == early.receive_peer(b"more", 0)
    assert (True, [], [True]) == (early.is_finished, early.start(1), committed)


def test_an_end_is_an_answer(early, committed):
    """A peer that ends its direction has answered."""
    assert [EndLocal()] == early.receive_peer_eof(0)
    assert (True, [True]) == (early.is_finished, committed)


def test_only_so_much_is_kept(early, committed):
    """Whoever sends a lot before the answer gets one stream."""
    early.receive_local(bytes(MAX_EARLY_BYTES - 1), 0)
    assert not early.is_finished
    assert [ToPeer(b"xyz")] == early.receive_local(b"xyz", 0)
    assert (True, 0, [True]) == (early.is_finished, len(early.layer), committed)
    assert [ToPeer(b"more")] == early.receive_local(b"more", 0)


def test_all_bytes_before_the_first_stream_are_kept(committed):
    """What is sent before there is a stream, however much, begins the first one."""
    early = Alone(EarlyBytes(lambda: committed.append(True), bytes))
    early.receive_local(bytes(MAX_EARLY_BYTES), 0)
    assert (False, []) == (early.layer.is_finished, committed)
    early.layer.has_stream = True
    assert [ToPeer(bytes(MAX_EARLY_BYTES))] == early.start(1)
    assert [True] == committed


def test_who_leaves_without_a_word_is_not_waited_for(early):
    """An end before any byte drops the stream; one behind some bytes is passed on, because an answer may follow."""
    assert [Abort("the local program disconnected before sending anything")] == early.receive_local_eof(0)
    early.receive_local(b"GET /", 0)
    assert [EndPeer()] == early.receive_local_eof(0)

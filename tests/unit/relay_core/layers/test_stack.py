"""Facts about several layers as one."""

from relay_core.dap.framing import encode
from relay_core.layers.layer import Abort, EndLocal, EndPeer, Layer, ResetLocal, ToLocal, ToPeer
from relay_core.layers.piece import MessageSplitter
from relay_core.layers.stack import LayerStack


class Tagging(Layer):
    """Puts its name behind everything, and answers each '?' of the local program itself."""

    def __init__(self, name):
        self.name = name

    def start(self, now):
        return [ToPeer(b"<" + self.name)]

    def receive_local(self, piece, now):
        answers = [ToLocal(b"!" + self.name)] * piece.data.count(b"?")
        return [ToPeer(piece.data.replace(b"?", b"") + self.name), *answers]

    def receive_peer(self, piece, now):
        return [ToLocal(piece.data + self.name)]


class Ticking(Layer):
    """Sends something at a given time, and is finished then."""

    def __init__(self, at):
        self.at = at

    def next_deadline(self):
        return self.at

    def tick(self, now):
        if now < self.at:
            return []
        self.is_finished = True
        return [ToLocal(b"tick"), ToPeer(b"tock")]

    def receive_local(self, piece, now):
        assert not self.is_finished
        return super().receive_local(piece, now)


class Stubborn(Layer):
    """Lets nothing end."""

    def receive_peer_lost(self, now):
        return []

    def receive_peer_eof(self, now):
        return [Abort("no")]


def test_without_layers_everything_passes():
    """Bytes, ends and a loss leave at the other side."""
    stack = LayerStack()
    assert [ToPeer(b"a")] == stack.receive_local(b"a", 0)
    assert [ToLocal(b"b")] == stack.receive_peer(b"b", 0)
    assert ([EndPeer()], [EndLocal()]) == (stack.receive_local_eof(0), stack.receive_peer_eof(0))
    assert [ResetLocal()] == stack.receive_peer_lost(0)
    assert ([], None, []) == (stack.start(0), stack.next_deadline(), stack.tick(0))


def test_layers_pass_on_to_their_neighbours():
    """What the local program sends goes through the first layer first, what the peer sends through the last."""
    stack = LayerStack([Tagging(b"1"), Tagging(b"2")])
    assert [ToPeer(b"x12")] == stack.receive_local(b"x", 0)
    assert [ToLocal(b"y21")] == stack.receive_peer(b"y", 0)


def test_an_answer_of_a_layer_passes_the_layers_before_it():
    """What a layer sends back goes through those next to the local program, and in its turn."""
    stack = LayerStack([Layer(), Tagging(b"1"), Tagging(b"2")])
    assert [ToPeer(b"x12"), ToLocal(b"!1")] == stack.receive_local(b"x?", 0)


def test_start_passes_the_layers_behind():
    """What a layer begins with is received by its neighbours."""
    assert [ToPeer(b"<12<2")] == LayerStack([Tagging(b"1"), Tagging(b"2")]).start(0)


def test_the_earliest_deadline_counts():
    """A layer that has finished is taken out, and with it its deadline."""
    stack = LayerStack([Ticking(5), Ticking(3), Layer()])
    assert (3, []) == (stack.next_deadline(), stack.tick(2))
    assert [ToPeer(b"tock"), ToLocal(b"tick")] == stack.tick(3)
    assert (5, 2) == (stack.next_deadline(), len(stack))
    assert [ToPeer(b"x")] == stack.receive_local(b"x", 4)


def test_a_layer_may_hold_an_end():
    """What a layer does not pass on does not happen, and an abort passes all others."""
    stack = LayerStack([Tagging(b"1"), Stubborn()])
    assert ([], [Abort("no")]) == (stack.receive_peer_lost(0), stack.receive_peer_eof(0))
    assert [EndPeer()] == stack.receive_local_eof(0)


def test_repr():
    """The layers are named."""
    assert repr(LayerStack()) == "<LayerStack []>"


class Reading(Layer):
    """Notes the messages of both sides, and answers each message of the peer."""

    longest_local = longest_peer = 100

    def __init__(self):
        self.seen = []

    def receive_local(self, piece, now):
        self.seen.append(piece.request())
        self.is_finished = piece.is_foreign
        return [piece]

    def receive_peer(self, piece, now):
        self.seen.append(piece.event())
        return [piece, ToPeer.of(ANSWER)] if piece.body else [piece]


ANSWER = {"seq": 1, "type": "response", "request_seq": 1}
EVENT = {"seq": 1, "type": "event", "event": "stopped"}
REQUEST = {"seq": 1, "type": "request", "command": "next"}
LONG = encode({**REQUEST, "arguments": {"threadId": "x" * 100}})


def test_a_stream_is_cut_once_for_all_layers():
    """Each layer that reads messages receives whole ones, and the very same, parsed once."""
    first, second = Reading(), Reading()
    stack = LayerStack([first, second])
    data = encode(REQUEST)
    assert [[], [ToPeer(data)]] == [stack.receive_local(data[:20], 0), stack.receive_local(data[20:], 0)]
    assert [REQUEST] == first.seen == second.seen
    assert first.seen[0] is second.seen[0]


def test_several_messages_leave_as_one_output():
    """What arrives together leaves together."""
    stack = LayerStack([Reading()])
    assert [ToPeer(encode(ANSWER) * 2), ToLocal(encode(EVENT) * 2)] == stack.receive_peer(encode(EVENT) * 2, 0)


def test_nothing_is_put_inside_a_long_message():
    """A message that a layer adds waits for the end of one that is passed on in parts."""
    stack = LayerStack([Reading()])
    assert [ToPeer(LONG[:60])] == stack.receive_local(LONG[:60], 0)
    assert [ToLocal(encode(EVENT))] == stack.receive_peer(encode(EVENT), 0)
    assert [ToPeer(LONG[60:] + encode(ANSWER))] == stack.receive_local(LONG[60:], 0)


def test_nothing_is_added_to_a_stream_that_is_not_dap_any_more():
    """A message of a layer could not be distinguished from the bytes around it."""
    stack = LayerStack([Reading()])
    assert [ToPeer(encode(REQUEST) + b"garbage")] == stack.receive_local(encode(REQUEST) + b"garbage", 0)
    assert [ToLocal(encode(EVENT))] == stack.receive_peer(encode(EVENT), 0)


def test_bytes_that_no_layer_waits_for_are_released():
    """Once no layer reads messages any more, an incomplete one passes on at once, in both directions."""
    stack = LayerStack([Reading()])
    assert [] == stack.receive_peer(b"Content", 0)
    assert [ToPeer(b"GET /"), ToLocal(b"Content")] == stack.receive_local(b"GET /", 0)
    assert ([ToPeer(b"Cont")], 0) == (stack.receive_local(b"Cont", 0), len(stack))


def test_an_incomplete_message_passes_before_an_end():
    """Bytes that wait for the rest of their message are not lost with the connection."""
    for send, end, expected in (
        ("receive_local", "receive_local_eof", [ToPeer(b"Content"), EndPeer()]),
        ("receive_peer", "receive_peer_eof", [ToLocal(b"Content"), EndLocal()]),
        ("receive_peer", "receive_peer_lost", [ToLocal(b"Content"), ResetLocal()]),
    ):
        stack = LayerStack([Reading()])
        assert [] == getattr(stack, send)(b"Content", 0)
        assert expected == getattr(stack, end)(0)


def test_a_message_may_come_in_through_two_stacks():
    """If the local program stays and the layers change, a message that has begun is not lost."""
    from_local = MessageSplitter(ToPeer)
    data = encode(REQUEST)
    assert [] == LayerStack([Reading()], from_local).receive_local(data[:30], 0)
    assert [ToPeer(data)] == LayerStack([Reading()], from_local).receive_local(data[30:], 0)


class Selective(Reading):
    """Handles one event of the peer, and no message of the local program."""

    local_names, peer_names = frozenset(), frozenset({"stopped"})


def test_a_layer_is_called_with_the_messages_that_it_handles():
    """A layer is called for the messages that it handles and for incomplete messages; other messages bypass it."""
    layer = Selective()
    stack = LayerStack([layer])
    other = encode({**EVENT, "event": "output"})
    assert [ToPeer(encode(REQUEST))] == stack.receive_local(encode(REQUEST), 0)
    assert [ToLocal(other)] == stack.receive_peer(other, 0)
    assert [ToPeer(encode(ANSWER)), ToLocal(encode(EVENT))] == stack.receive_peer(encode(EVENT), 0)
    assert [ToPeer(LONG[:60])] == stack.receive_local(LONG[:60], 0)
    assert [EVENT, None] == layer.seen

"""Facts about several layers as one."""

from relay_core.layers.layer import Abort, EndLocal, EndPeer, Layer, ResetLocal, ToLocal, ToPeer
from relay_core.layers.stack import LayerStack


class Tagging(Layer):
    """Puts its name behind everything, and answers each '?' of the local program itself."""

    def __init__(self, name):
        self.name = name

    def start(self, now):
        return [ToPeer(b"<" + self.name)]

    def receive_local(self, data, now):
        answers = [ToLocal(b"!" + self.name)] * data.count(b"?")
        return [ToPeer(data.replace(b"?", b"") + self.name), *answers]

    def receive_peer(self, data, now):
        return [ToLocal(data + self.name)]


class Ticking(Layer):
    """Says something at a time, and is finished then."""

    def __init__(self, at):
        self.at = at

    def next_deadline(self):
        return self.at

    def tick(self, now):
        if now < self.at:
            return []
        self.is_finished = True
        return [ToLocal(b"tick"), ToPeer(b"tock")]

    def receive_local(self, data, now):
        assert not self.is_finished
        return super().receive_local(data, now)


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
    assert [ToPeer(b"<12"), ToPeer(b"<2")] == LayerStack([Tagging(b"1"), Tagging(b"2")]).start(0)


def test_the_earliest_deadline_counts():
    """A layer that has finished is taken out, and with it its deadline."""
    stack = LayerStack([Ticking(5), Ticking(3), Layer()])
    assert (3, []) == (stack.next_deadline(), stack.tick(2))
    assert [ToLocal(b"tick"), ToPeer(b"tock")] == stack.tick(3)
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

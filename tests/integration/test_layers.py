"""Facts about the layers of client and agent together, without sockets: however bytes come, the same bytes arrive."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from relay_agent.agent.layers import GreetingGuard
from relay_agent.agent.prefetch_layer import PrefetchLayer
from relay_client.ports.layers import EarlyBytes
from relay_client.prefetch import ResponseCache
from relay_core.dap.framing import encode
from relay_core.layers.layer import Abort, EndLocal, EndPeer, Output, ResetLocal, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED, MessageSplitter
from relay_core.layers.stack import LayerStack

GREETING = encode({"type": "event", "event": "output"}) + encode({"type": "event", "event": "debugpySockets"})
END = None


class Side:
    """A program with the layers next to it; what leaves them is put on the other side's wire."""

    def __init__(self, stack: LayerStack) -> None:
        self.stack = stack
        self.received = bytearray()
        """What the program has received."""
        self.has_ended = False
        """The program has received the end."""
        self.wire: deque[bytes | None] = deque()
        """What comes from the peer, in order; None is its end."""

    def do(self, outputs: list[Output], peer: "Side") -> None:
        for output in outputs:
            if isinstance(output, ToLocal):
                assert not self.has_ended
                self.received += output.data
            elif isinstance(output, ToPeer):
                peer.wire.append(output.data)
            elif isinstance(output, EndPeer):
                peer.wire.append(END)
            else:
                assert isinstance(output, EndLocal)
                self.has_ended = True

    def take(self, size: int, now: float, peer: "Side") -> None:
        """Let some bytes of the wire arrive."""
        data = self.wire.popleft() if self.wire else b""
        if data is END:
            self.do(self.stack.receive_peer_eof(now), peer)
        elif data:
            if len(data) > size:
                self.wire.appendleft(data[size:])
            self.do(self.stack.receive_peer(data[:size], now), peer)


class Path:
    """An editor and a debugger, what they have not sent yet, and the layers between them."""

    def __init__(self, editor: bytes, debugger: bytes) -> None:
        self.now = 0.0
        self.early = EarlyBytes(lambda: None, bytes)
        self.from_editor = MessageSplitter(ToPeer)
        self.unsent = [editor, debugger]
        self.sides = self._connected()

    def _connected(self) -> list[Side]:
        client = Side(LayerStack([self.early, ResponseCache()], self.from_editor))
        agent = Side(LayerStack([GreetingGuard(self.now), PrefetchLayer()]))
        client.do(client.stack.start(self.now), agent)
        return [client, agent]

    def say(self, who: int, size: int) -> None:
        """Let the editor (0) or the debugger (1) send some bytes."""
        data, self.unsent[who] = self.unsent[who][:size], self.unsent[who][size:]
        if data:
            side, peer = self.sides[who], self.sides[1 - who]
            side.do(side.stack.receive_local(data, self.now), peer)

    def end(self, who: int) -> None:
        """Let one of them send the rest, and then end."""
        self.say(who, len(self.unsent[who]))
        side, peer = self.sides[who], self.sides[1 - who]
        side.do(side.stack.receive_local_eof(self.now), peer)

    def arrive(self, who: int, size: int) -> None:
        self.sides[who].take(size, self.now, self.sides[1 - who])

    def lose(self) -> None:
        """The target goes away before it has answered: the editor's bytes are for another one."""
        client, _ = self.sides
        if not self.early.is_finished:
            assert [ResetLocal()] == client.stack.receive_peer_lost(self.now)
            self.sides = self._connected()

    def settle(self) -> None:
        while any(side.wire for side in self.sides):
            for who in (0, 1):
                self.arrive(who, 1 << 30)


texts = st.text("stopped\"{}'next", max_size=30)
small = st.builds(
    lambda kind, name, seq, text: encode(
        {"type": kind, "command": name, "event": name, "seq": seq, "request_seq": 1, "body": {"text": text}}
    ),
    st.sampled_from(["request", "response", "event"]),
    st.sampled_from(["initialize", "next", "continue", "evaluate", "setVariable", "output", "stopped", "terminated"]),
    st.integers(1, 9),
    texts,
)
long = st.integers(MAX_PARSED - 40, MAX_PARSED + 40).map(
    lambda size: encode({"type": "event", "event": "output", "body": {"output": "x" * size}})
)
conversations = st.lists(small | small | small | long, max_size=6).map(b"".join)
anything = st.builds(bytes.__add__, conversations, st.just(b"") | st.binary(max_size=40))
sizes = st.sampled_from([1, 2, 7, 20, 100, 5000, 1 << 20])
schedules = st.lists(st.tuples(st.sampled_from(["say", "arrive"]), st.integers(0, 1), sizes), max_size=60)


@given(anything, anything, st.integers(0, 12), schedules, schedules, st.permutations([0, 1]))
def test_any_interleaving_and_any_chunking_gives_the_same_bytes(editor, debugger, lost_after, early, late, ends):
    """Each side receives exactly what the other has sent, and then its end, however often the target went before."""
    path = Path(editor or b"x", GREETING + debugger)
    path.say(0, 1)
    for number, (what, who, size) in enumerate(early):
        if what == "arrive" or who == 0:
            getattr(path, what)(who, size)
        if number == lost_after:
            path.lose()
    for what, who, size in late:
        getattr(path, what)(who, size)
        path.now += 0.001
    for who in ends:
        path.end(who)
        path.settle()
    client, agent = path.sides
    assert (GREETING + debugger, True) == (client.received, client.has_ended)
    assert (editor or b"x", True) == (agent.received, agent.has_ended)


@given(st.lists(st.tuples(st.sampled_from(["say", "end", "tick"]), st.integers(0, 1), sizes), max_size=30))
def test_the_adapter_is_never_left_before_it_has_greeted(moves):
    """Until the greeting is complete or its time is over, nothing that a client does ends the adapter's connection."""
    path = Path(b"x" * 100, GREETING)
    guarded = path.sides[1]
    ended: set[int] = set()
    for what, who, size in moves:
        if what == "tick":
            path.now += size / 1000
            guarded.do([out for out in guarded.stack.tick(path.now) if not isinstance(out, Abort)], path.sides[0])
        elif what == "say" and who not in ended:
            path.say(who, size)
        elif what == "end" and who == 0 and 0 not in ended:
            ended.add(0)
            path.end(0)
        path.settle()
        has_greeted = len(path.unsent[1]) < len(GREETING) and not path.unsent[1]
        in_time = path.now < 2.0
        assert not (guarded.has_ended and in_time and not has_greeted)

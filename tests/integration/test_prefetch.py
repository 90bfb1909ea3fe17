"""Facts about prefetching: client and agent together, against an adapter with predictable responses."""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_agent.agent.prefetch_layer import PrefetchLayer
from relay_client.agents.tunnels import Tunnels
from relay_client.ports.forwarder import Forwarder
from relay_client.prefetch import ResponseCache
from relay_core.dap.framing import Message, MessageDecoder, encode
from relay_core.dap.prefetch import PREFETCH_EVENT, PREFETCH_SET
from relay_core.hyco.address import Endpoint
from relay_core.layers.piece import MAX_PARSED
from relay_core.tunnel.limits import Settings
from tests.support.debuggers.debuggee import LINE, PROGRAM, debuggee, stopped_at_breakpoint
from tests.support.debuggers.scripted_adapter import ScriptedAdapter
from tests.support.editors.listening import listening_editor
from tests.support.editors.stopped import Stopped
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.streams import echo, local_server, split
from tests.support.network.chaos import ChaosProxy, CutSchedule
from tests.support.network.relay import HC, LocalRelay
from tests.support.network.tunnel import tunnelled, tunnelled_to
from tests.support.sessions.layers import Alone

STOPS = 8
Debugging = Callable[[Tunnels, int, Path], AbstractAsyncContextManager[Stopped]]


class Wire:
    """An editor's connection through client and agent; bytes move when the test moves them."""

    def __init__(self, adapter: ScriptedAdapter) -> None:
        self.now = 100.0
        self.client, self.agent, self.adapter = Alone(ResponseCache()), Alone(PrefetchLayer()), adapter
        self.up, self.down = bytearray(), bytearray()
        self.decoder = MessageDecoder()
        self.received: deque[Message] = deque()
        self.seq = self.last_number = 0

    def send(self, command: str, **arguments: object) -> int:
        """Send a request of the editor, and return its number."""
        self.seq += 1
        request = {"seq": self.seq, "type": "request", "command": command, "arguments": arguments}
        onward, back = split(self.client.receive_local(encode(request), self.now))
        self.up += onward
        self.receive(back)
        return self.seq

    def receive(self, data: bytes) -> None:
        """Deliver messages to the editor, whose numbers never decrease."""
        for message in self.decoder.receive_data(data):
            number = message["seq"]
            assert number >= self.last_number, f"{number} after {self.last_number}"
            self.last_number = number
            self.received.append(message)

    def move_up(self, size: int) -> None:
        data, self.up = bytes(self.up[:size]), self.up[size:]
        self.adapter.receive(split(self.agent.receive_peer(data, self.now))[1])

    def move_down(self, size: int) -> None:
        data, self.down = bytes(self.down[:size]), self.down[size:]
        self.receive(split(self.client.receive_peer(data, self.now))[1])

    def work(self) -> None:
        onward, requests = split(self.agent.receive_local(self.adapter.work(), self.now))
        self.down += onward
        self.adapter.receive(requests)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def settle(self) -> None:
        """Deliver everything, and answer every request."""
        while self.up or self.down or self.adapter.busy:
            self.move_up(len(self.up))
            while self.adapter.busy:
                self.work()
            self.move_down(len(self.down))

    def ask(self, command: str, **arguments: object) -> dict[str, object]:
        """Return the body of the response, wherever it comes from."""
        number = self.send(command, **arguments)
        self.settle()
        while (message := self.received.popleft()).get("request_seq") != number:
            pass
        return message["body"]

    def look(self) -> dict[str, object]:
        """Send the requests of VS Code at a stop, and return the variables."""
        self.ask("threads")
        frame = self.ask("stackTrace", threadId=1, startFrame=0, levels=1)["stackFrames"][0]["id"]
        scope = self.ask("scopes", frameId=frame)["scopes"][0]["variablesReference"]
        return self.ask("variables", variablesReference=scope)


def stopped_again():
    """Return a path whose client has looked at one stop, and now knows of the next."""
    path = Wire(ScriptedAdapter())
    path.settle()
    path.ask("next", threadId=1)
    path.look()
    path.ask("next", threadId=1)
    return path


def test_second_stop_costs_one_round_trip():
    """Responses to the requests of one stop are on the client at the next; the debugger receives each request once."""
    path = stopped_again()
    asked = len(path.adapter.requests)
    path.received.clear()
    path.send("threads")
    assert not path.up
    assert path.received.popleft()["body"] == {"threads": [{"id": 1, "name": "after 2 stops"}]}
    assert path.look()["variables"][0]["value"] == "2 0 200"
    # The second `threads`; a prefetched response is used once:
    assert ["threads"] == [request["command"] for request in path.adapter.requests[asked:]]


def test_watch_expressions_cost_one_round_trip():
    """What an editor requests after its watch expressions is on the client, and newer than they are."""
    path = stopped_again()
    frame = path.ask("stackTrace", threadId=1, startFrame=0, levels=1)["stackFrames"][0]["id"]
    for _ in range(3):
        path.send("evaluate", expression="x", frameId=frame, context="watch")
    path.settle()
    asked = len(path.adapter.requests)
    path.received.clear()
    path.send("scopes", frameId=frame)
    assert not path.up
    reference = path.received.popleft()["body"]["scopes"][0]["variablesReference"]
    path.send("variables", variablesReference=reference)
    assert not path.up
    assert "2 3 200" == path.received.popleft()["body"]["variables"][0]["value"], "after three evaluations"
    assert asked == len(path.adapter.requests)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**9 + 5) | st.sampled_from(["threads", "evaluate", "stopped", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["threadId", "frameId", "requests", "after", "requested", "responses", "context", PREFETCH_EVENT]
            ),
            inner,
        )
    ),
)
fields = st.sampled_from(["seq", "request_seq", "command", "event", "arguments", "body", "success"])
messages = st.builds(
    lambda kind, name, rest: {"type": kind, "command": name, "event": name, **rest},
    st.sampled_from(["request", "response", "event"]),
    st.sampled_from(["threads", "scopes", "next", "stopped", "continued", PREFETCH_SET, PREFETCH_EVENT]),
    st.dictionaries(fields, values),
)


@given(st.lists(st.tuples(st.booleans(), messages), max_size=12))
def test_any_messages_through_client_and_agent(sent):
    """No message of an editor or a debugger, however malformed, raises an exception in either layer."""
    client, agent = Alone(ResponseCache()), Alone(PrefetchLayer())
    for from_editor, message in sent:
        if from_editor:
            onward, _ = split(client.receive_local(encode(message), 0))
            agent.receive_peer(onward, 0)
        else:
            onward, _ = split(agent.receive_local(encode(message), 0))
            client.receive_peer(onward, 0)


async def look(session: Stopped, levels: int = 1) -> dict[str, str]:
    """Send debugpy the requests of VS Code at a stop, with so many frames of the stack, and return the variables."""
    ask = session.client.request
    thread = (await ask("threads"))["threads"][0]["id"]
    stack = await ask("stackTrace", {"threadId": thread, "startFrame": 0, "levels": levels})
    scopes = (await ask("scopes", {"frameId": stack["stackFrames"][0]["id"]}))["scopes"]
    variables = await ask("variables", {"variablesReference": scopes[0]["variablesReference"]})
    return {variable["name"]: variable["value"] for variable in variables["variables"]}


async def test_real_debugger(relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the second stop every request is answered from the cache: the tunnel to the agent is stalled."""
    for limit in ("AUTOMATIC_DELAY", "MAX_AGE"):  # on a slow machine, the editor is as slow as a person
        monkeypatch.setattr(f"relay_client.prefetch.{limit}", 3600.0)
    async with (
        debuggee(tmp_path) as (_, debugger_port, script),
        tunnelled_to(relay, debugger_port, dap_only=True, settings=Settings()) as path,
        stopped_at_breakpoint(path.port, script) as session,
    ):
        assert (await look(session))["number"] == "7"
        assert await session.step() == LINE + 1
        path.chaos.up.stalled = True
        assert (await look(session))["square"] == "49"
        path.chaos.up.stalled = False
        assert await session.value("square + 1") == "50"


@contextlib.asynccontextmanager
async def connecting(tunnels: Tunnels, port: int, script: Path) -> AsyncIterator[Stopped]:
    """Debug a job with an editor that connects."""
    async with Forwarder(tunnels, [port]), stopped_at_breakpoint(port, script) as session:
        yield session


@contextlib.asynccontextmanager
async def listening(tunnels: Tunnels, port: int, script: Path) -> AsyncIterator[Stopped]:
    """Debug a job with an editor that listens."""
    async with listening_editor(port, script, LINE) as editor, Forwarder(tunnels, [port], may_reverse=True):
        await editor.until_stopped()
        yield editor
        await editor.leave()


@pytest.mark.parametrize("debugging", [connecting, listening])
async def test_job(relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, debugging: Debugging) -> None:
    """The same with a job whose debugpy relay_agent started, whichever side connects."""
    for limit in ("AUTOMATIC_DELAY", "MAX_AGE"):
        monkeypatch.setattr(f"relay_client.prefetch.{limit}", 3600.0)
    port, script = free_port(), tmp_path / "counting.py"
    script.write_text(PROGRAM)
    levels = 20 if debugging is listening else 1  # an editor that listens gets single frames from debugpy only
    async with (
        running_job(relay, script, "--port", str(port)),
        ChaosProxy("127.0.0.1", relay.server.port) as chaos,
        Tunnels(Endpoint("localhost", chaos.port, HC), relay.sender, relay.tls) as tunnels,
        debugging(tunnels, port, script) as session,
    ):
        number = int((await look(session, levels))["number"])
        assert await session.step() == LINE + 1
        chaos.up.stalled = True
        assert int((await look(session, levels))["square"]) == number * number
        chaos.up.stalled = False
        assert await session.value("square + 1") == str(number * number + 1)


async def test_switched_off(relay: LocalRelay) -> None:
    """Without prefetch, a prefetch event is like any other unknown event: the editor receives a line in its place."""
    body = {"after": 0, "requested": [], "responses": []}
    data = encode({"type": "event", "event": PREFETCH_EVENT, "body": body})
    async with local_server(echo) as (port, _), tunnelled_to(relay, port, prefetch=False) as path:
        reader, writer = await asyncio.open_connection("127.0.0.1", path.port)
        writer.write(data)
        received = await asyncio.wait_for(reader.readuntil(b"because it is unknown"), DEADLINE)
        assert f"event '{PREFETCH_EVENT}' is not passed to the editor".encode() in received
        assert data not in received
        writer.close()
        await writer.wait_closed()


async def test_any_messages_through_a_tunnel(relay: LocalRelay) -> None:
    """Short and long messages both ways, over cuts: every byte arrives, with prefetch in between."""
    rng = random.Random(5)
    sizes = [rng.choice([10, 500, 70_000, MAX_PARSED, 600_000]) for _ in range(40)]
    response = {"type": "response", "request_seq": 1, "success": True, "command": "source"}
    data = b"".join(encode({**response, "body": {"content": rng.randbytes(n // 2).hex()}}) for n in sizes)
    async with tunnelled(relay) as path:
        schedule = CutSchedule(path.chaos, seed=3)
        reader, writer = await asyncio.open_connection("127.0.0.1", path.port)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        schedule.stop()
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("seed", range(8))
def test_any_editor_on_any_network(seed):
    """However bytes are timed and whatever the editor requests, it receives what it would receive without prefetch."""
    for number in range(25):
        _walk(random.Random(f"{seed} {number}"))


def _walk(rng: random.Random) -> None:
    path, model = Wire(ScriptedAdapter()), ScriptedAdapter()
    expected: dict[int, tuple[str, dict[str, object] | None]] = {}
    stops_seen = 0
    running = False
    frames, scopes = [0], [0, 0]
    to_show: list[str] = []
    tidy, curious = rng.choice([0.0, 0.8, 1.0]), rng.choice([1, 4])

    def listen() -> None:
        nonlocal stops_seen, running
        while path.received:
            message = path.received.popleft()
            if message["type"] == "event":
                assert message["event"] in {"output", "stopped"}
                if message["event"] == "stopped":
                    stops_seen += 1
                    running = False
                    to_show[:] = ["threads", "stackTrace", "scopes", "variables"]
            else:
                assert expected.pop(message["request_seq"]) == (message["command"], message.get("body"))
                frames.extend(frame["id"] for frame in (message.get("body") or {}).get("stackFrames", ()))
                scopes.extend(s["variablesReference"] for s in (message.get("body") or {}).get("scopes", ()))

    def act() -> None:
        nonlocal running
        if stops_seen == STOPS or len(expected) > 4:
            return
        weights = {"threads": 2, "stackTrace": 4, "scopes": 4, "variables": 6, "evaluate": 1, "next": curious}
        (command,) = ["evaluate"] if running else rng.choices(list(weights), list(weights.values()))
        chosen: dict[str, object] = {
            "stackTrace": {"threadId": 1, "startFrame": rng.choice([0, 1]), "levels": rng.choice([1, 19])},
            "scopes": {"frameId": rng.choice(frames)},
            "variables": {"variablesReference": rng.choice(scopes)},
        }
        usual: dict[str, object] = {
            "threads": {},
            "stackTrace": {"threadId": 1, "startFrame": 0, "levels": 1},
            "scopes": {"frameId": frames[-1]},
            "variables": {"variablesReference": scopes[-2]},
            "evaluate": {"expression": "x", "context": rng.choice(["watch", "hover", "repl"])},
            "next": {"threadId": 1},
        }
        if to_show and not running and not expected and rng.random() < tidy:
            command = to_show.pop(0)
        arguments = usual[command] if rng.random() < 0.8 else {**usual, **chosen}[command]
        model.evaluations += command == "evaluate"
        answer = model.answer(command, arguments)
        if command == "next":
            model.stop += 1
            running = True
        expected[path.seq + 1] = (command, answer)
        path.send(command, **arguments)

    moves = [
        (lambda: path.move_up(rng.choice([1, 20, 1000])), 4),
        (lambda: path.move_down(rng.choice([1, 20, 1000, 1000])), rng.choice([1, 8])),
        (lambda: path.adapter.busy and path.work(), rng.choice([1, 6])),
        (lambda: path.pass_time(rng.choice([0.001] * 20 + [0.1, 3])), 2),
        (lambda: act() if not running or rng.random() < 0.1 else None, rng.choice([1, 4])),
    ]
    while stops_seen < STOPS or expected:
        rng.choices([move for move, _ in moves], [weight for _, weight in moves])[0]()
        listen()
    assert stops_seen == STOPS

"""Facts about requests of an editor that a client answers from what was prefetched."""

import pytest

from relay_client.prefetch import AUTOMATIC_DELAY, MAX_AGE, ResponseCache
from relay_core.dap.framing import Message, MessageDecoder, encode
from relay_core.dap.prefetch import PREFETCH_EVENT, PREFETCH_SET
from relay_core.layers.layer import EndLocal, EndPeer, ResetLocal, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED
from tests.support.machine.streams import split
from tests.support.sessions.layers import Alone

THREADS = {"threads": [{"id": 1, "name": "main"}]}


class Editor:
    """An editor behind the layer; the test takes the part of the agent."""

    def __init__(self) -> None:
        self.now = 10.0
        self.client = Alone(ResponseCache())
        self.seq = 0

    def send(self, command: str, **arguments: object) -> tuple[list[Message], list[Message]]:
        """Send a request; return the messages for the agent, and those that the editor receives immediately."""
        self.seq += 1
        request = {"seq": self.seq, "type": "request", "command": command, "arguments": arguments}
        to_agent, to_editor = split(self.client.receive_local(encode(request), self.now))
        return parse(to_agent), parse(to_editor)

    def receive(self, *messages: Message) -> list[Message]:
        """Receive messages of the agent; return those that the editor receives."""
        return parse(split(self.client.receive_peer(b"".join(map(encode, messages)), self.now))[1])


def parse(data: bytes) -> list[Message]:
    return MessageDecoder().receive_data(data)


def stopped(thread: int = 1) -> Message:
    return {"seq": 1, "type": "event", "event": "stopped", "body": {"threadId": thread}}


def prefetch_event(body: object) -> Message:
    return {"seq": 0, "type": "event", "event": PREFETCH_EVENT, "body": body}


def prefetched(editor: Editor, *commands: str, after: int | None = None) -> Message:
    """Return the prefetch event with these requests, numbered from 1000; `after` defaults to the last request."""
    asked = [{"seq": 1000 + n, "type": "request", "command": command} for n, command in enumerate(commands)]
    return prefetch_event({"after": editor.seq if after is None else after, "requested": asked, "responses": []})


def answered(body: object = THREADS, *, seq: int = 1000, success: bool = True) -> Message:
    """Return the prefetch event with one response."""
    response = {"type": "response", "request_seq": seq, "command": "threads", "success": success, "body": body}
    return prefetch_event({"after": 0, "requested": [], "responses": [response]})


@pytest.fixture
def editor() -> Editor:
    """An editor that has requested threads at a stop, and stepped."""
    editor = Editor()
    editor.receive(stopped())
    to_agent, _ = editor.send("threads")
    assert ["threads"] == [message["command"] for message in to_agent]
    to_agent, _ = editor.send("next", threadId=1)
    assert [PREFETCH_SET, "next"] == [message["command"] for message in to_agent]
    assert [{"command": "threads", "scope": 0, "rest": {}}] == to_agent[0]["arguments"]["requests"]
    return editor


def test_response_that_has_arrived(editor):
    """The event is passed on immediately, and a request with a prefetched response is not sent to the agent."""
    assert [stopped()] == editor.receive(stopped(), prefetched(editor, "threads"), answered())
    to_agent, (response,) = editor.send("threads")
    assert to_agent == []
    assert (response["request_seq"], response["body"]) == (editor.seq, THREADS)


def test_request_and_response_in_one_event(editor):
    """A prefetch event may contain a request together with its response."""
    event = prefetched(editor, "threads")
    event["body"]["responses"] = answered()["body"]["responses"]
    editor.receive(stopped(), event)
    to_agent, (response,) = editor.send("threads")
    assert (to_agent, response["body"]) == ([], THREADS)


@pytest.mark.parametrize("success", [True, False])
def test_response_that_is_under_way(editor, success):
    """A request that the agent has already sent is not sent again; its response goes to the editor on arrival."""
    assert [stopped()] == editor.receive(stopped(), prefetched(editor, "threads"))
    assert ([], []) == editor.send("threads")
    (response,) = editor.receive(answered(success=success))
    assert (response["request_seq"], response["body"], response["success"]) == (editor.seq, THREADS, success)


def test_unclaimed_failure(editor):
    """A failed prefetch is not used: the debugger answers the editor's own request."""
    editor.receive(stopped(), prefetched(editor, "threads"), answered(success=False))
    assert 1 == len(editor.send("threads")[0])


@pytest.mark.parametrize("first", [[answered()], []])
def test_response_is_used_once(editor, first):
    """A repeated request asks for the current value, so the debugger answers it."""
    editor.receive(stopped(), prefetched(editor, "threads"), *first)
    editor.send("threads")
    to_agent, to_editor = editor.send("threads")
    assert (["threads"], []) == ([message["command"] for message in to_agent], to_editor)


def test_unchanged_set_is_sent_once(editor):
    """An editor that sends the same requests at each stop causes no further messages."""
    editor.receive(stopped(), prefetched(editor, "threads"), answered())
    editor.send("threads")
    to_agent, _ = editor.send("next", threadId=1)
    assert ["next"] == [message["command"] for message in to_agent]


def test_request_that_the_editor_no_longer_sends(editor):
    """A request that was not sent at the last stop, although there was time to, is not prefetched at the next."""
    editor.receive(stopped(), prefetched(editor, "threads"), answered())
    editor.now += AUTOMATIC_DELAY
    (plan, _), _ = editor.send("next", threadId=1)
    assert plan["arguments"] == {"requests": []}
    assert [stopped()] == editor.receive(stopped())


def test_steps_in_quick_succession(editor):
    """A request that the editor had no time to send stays in the set, because the user may inspect the next stop."""
    for _ in range(3):
        editor.receive(stopped())
        to_agent, _ = editor.send("next", threadId=1)
        assert ["next"] == [message["command"] for message in to_agent]


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("evaluate", {"expression": "x = 1", "context": "repl"}),
        ("evaluate", {"expression": "next(batches)", "context": "watch"}),
        ("evaluate", {"expression": "batches.pop()", "context": "hover"}),
        ("evaluate", {"expression": "x"}),
        ("setVariable", {"name": "x"}),
        ("continue", {"threadId": 1}),
    ],
)
def test_request_that_may_change_something(editor, command, arguments):
    """After it, the debugger answers: an expression may have side effects, in a watch or a tooltip, too."""
    editor.receive(stopped(), prefetched(editor, "threads"), answered())
    editor.send(command, **arguments)
    to_agent, to_editor = editor.send("threads")
    assert (1, []) == (len(to_agent), to_editor)


def test_response_that_was_under_way_at_a_change(editor):
    """It may be outdated and is not used, except for a request that the editor sent before the change."""
    editor.receive(stopped(), prefetched(editor, "threads", "stackTrace"))
    editor.send("stackTrace")
    editor.send("setVariable", name="x")
    (response,) = editor.receive(answered(), answered(seq=1001))
    assert response["request_seq"] == editor.seq - 1
    to_agent, to_editor = editor.send("threads")
    assert (1, []) == (len(to_agent), to_editor)


def test_request_that_was_prefetched_before_a_change(editor):
    """At a stop during a change by the editor, the agent prefetches too early: its responses are not used."""
    editor.send("setVariable", name="x")
    editor.receive(stopped(), prefetched(editor, "threads", after=editor.seq - 1), answered())
    assert 1 == len(editor.send("threads")[0])


def test_numbers_do_not_go_backwards(editor):
    """A prefetched response, however late it is used, has the number of the last message that the editor received."""
    event = answered()
    event["body"]["responses"][0]["seq"] = 27
    later = {"seq": 58, "type": "event", "event": "output", "body": {"output": "x"}}
    received = editor.receive(stopped(), prefetched(editor, "threads", "stackTrace"), event, later)
    received += editor.send("threads")[1]
    editor.send("stackTrace")
    received += editor.receive({**later, "seq": 59}, answered(seq=1001))
    assert [1, 58, 58, 59, 59] == [message["seq"] for message in received]


def test_long_request(editor):
    """After a request that is too long to be parsed, nothing is answered from the cache until the next one."""
    editor.send("evaluate", expression="x" * MAX_PARSED)
    editor.receive(stopped(), prefetched(editor, "threads", after=0), answered())
    assert 1 == len(editor.send("threads")[0])


@pytest.mark.parametrize("event", ["continued", "exited", "invalidated", "terminated", "thread"])
def test_event_that_reports_a_change(editor, event):
    """After it, the debugger answers."""
    editor.receive(
        stopped(), prefetched(editor, "threads"), answered(), {"seq": 3, "type": "event", "event": event, "body": {}}
    )
    assert 1 == len(editor.send("threads")[0])


def test_request_that_was_prefetched_after_a_change(editor):
    """Between such an event and the next stop nothing is answered from the cache."""
    editor.receive(stopped(), {"seq": 3, "type": "event", "event": "continued", "body": {}})
    editor.receive(prefetched(editor, "threads"), answered())
    assert 1 == len(editor.send("threads")[0])


def test_old_response(editor):
    """A response older than MAX_AGE is not used."""
    editor.receive(stopped(), prefetched(editor, "threads"), answered())
    editor.now += MAX_AGE + 0.1
    assert 1 == len(editor.send("threads")[0])


def test_delayed_stacks_are_kept_from_the_editor():
    """Of the capabilities in the response to `initialize`, exactly this one is removed."""
    editor = Editor()
    editor.send("initialize")
    response = {"seq": 1, "type": "response", "request_seq": 1, "command": "initialize", "success": True}
    capabilities = {"supportsDelayedStackTraceLoading": True, "supportsSetVariable": True}
    expected = {**response, "body": {"supportsSetVariable": True}}
    assert [expected] == editor.receive({**response, "body": capabilities})


@pytest.mark.parametrize("body", [{}, {"body": None}, {"body": {"supportsSetVariable": True}}])
def test_other_responses_to_initialize(body):
    """A response without that capability, a failure too, is passed on unchanged."""
    editor = Editor()
    editor.send("initialize")
    response = {"seq": 1, "type": "response", "request_seq": 1, "command": "initialize", "success": False, **body}
    assert [response] == editor.receive(response)


def test_single_frames_for_an_editor_that_listens():
    """With the adapter on this machine, a request of one frame is neither learned nor answered, but its ids are."""
    editor = Editor()
    editor.client = Alone(ResponseCache(is_adapter_local=True))
    editor.receive(stopped())
    editor.send("stackTrace", threadId=1, startFrame=0, levels=1)
    editor.receive({"type": "response", "request_seq": editor.seq, "body": {"stackFrames": [{"id": 7}]}})
    editor.send("scopes", frameId=7)
    (plan, _), _ = editor.send("next", threadId=1)
    assert [{"command": "scopes", "scope": 0, "rest": {}}] == plan["arguments"]["requests"]
    one = {"threadId": 1, "startFrame": 0, "levels": 1}
    request = {"seq": 1000, "type": "request", "command": "stackTrace", "arguments": one}
    editor.receive(
        stopped(), prefetch_event({"after": editor.seq, "requested": [request], "responses": []}), answered()
    )
    assert 1 == len(editor.send("stackTrace", **one)[0])


def test_order_of_the_set():
    """Requests whose responses others need come first."""
    editor = Editor()
    editor.receive(stopped())
    editor.send("threads")
    editor.send("stackTrace", threadId=1)
    (plan, _), _ = editor.send("next", threadId=1)
    assert ["stackTrace", "threads"] == [question["command"] for question in plan["arguments"]["requests"]]


def test_people_are_slow():
    """A request long after the last response was a click, and is not prefetched."""
    editor = Editor()
    editor.receive(stopped())
    editor.now += AUTOMATIC_DELAY + 0.01
    editor.send("threads")
    to_agent, _ = editor.send("next", threadId=1)
    assert ["next"] == [message["command"] for message in to_agent]


def test_end(editor):
    """The part of a message that editor or agent have sent is passed on before the end."""
    client = editor.client
    assert client.receive_peer(encode(stopped()) + b"Content", editor.now) == [ToLocal(encode(stopped()))]
    assert client.receive_peer_eof(editor.now) == [ToLocal(b"Content"), EndLocal()]
    assert client.receive_local(b"Content", editor.now) == []
    assert client.receive_local_eof(editor.now) == [ToPeer(b"Content"), EndPeer()]


def test_ends(editor):
    """An end between messages is passed on alone; part of a message is passed on before a loss."""
    client = editor.client
    assert ([EndPeer()], [EndLocal()]) == (client.receive_local_eof(0), client.receive_peer_eof(0))
    assert [ResetLocal()] == client.receive_peer_lost(0)
    client.receive_peer(b"Content", 0)
    assert [ToLocal(b"Content"), ResetLocal()] == client.receive_peer_lost(0)


@pytest.mark.parametrize("size", [MAX_PARSED + 1, 3_000_000])
def test_long_response(editor, size):
    """A prefetched response may be as long as a response of debugpy."""
    editor.receive(stopped(), prefetched(editor, "threads"))
    editor.send("threads")
    (response,) = editor.receive(answered("x" * size))
    assert (response["request_seq"], len(response["body"])) == (editor.seq, size)


@pytest.mark.parametrize("body", [None, {}, {"after": 3, "requested": 3, "responses": []}, {"after": None}])
def test_malformed_prefetch_event(editor, body):
    """It is passed on to the editor, which ignores it."""
    malformed = prefetch_event(body)
    assert [malformed] == editor.receive(malformed)


@pytest.mark.parametrize("malformed", [None, 3, {}, {"type": "request", "command": "threads", "seq": None}])
def test_malformed_requests_and_responses(editor, malformed):
    """They are ignored, and so are responses without a request."""
    event = prefetch_event({"after": editor.seq, "requested": [malformed], "responses": [malformed]})
    assert [stopped()] == editor.receive(stopped(), event, answered())
    assert 1 == len(editor.send("threads")[0])


@pytest.mark.parametrize("early", [b"", b"Content"])
def test_connection_that_is_not_an_editors(early):
    """A layer in front of another protocol is finished, and holds no bytes of the other direction back."""
    client = Alone(ResponseCache())
    client.receive_peer(early, 0)
    held = [ToLocal(early)] if early else []
    assert [ToPeer(b"GET / HTTP/1.1"), *held] == client.receive_local(b"GET / HTTP/1.1", 0)
    assert client.is_finished


def test_editor_that_loses_its_framing(editor):
    """One that has spoken DAP keeps its layer: messages of the agent may be on their way."""
    editor.client.receive_local(b"garbage", editor.now)
    assert not editor.client.is_finished

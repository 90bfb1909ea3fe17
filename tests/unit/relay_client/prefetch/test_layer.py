"""Facts about requests of an editor that a client answers from what was prefetched."""

import pytest

from relay_client.prefetch.layer import KEPT, PROMPT, PrefetchCacheLayer
from relay_core.dap.framing import Message, MessageDecoder, encode
from relay_core.dap.prefetch import NEWS, PLAN
from relay_core.dap.splitter import MAX_WHOLE
from relay_core.layers.layer import EndLocal, EndPeer, ResetLocal, ToLocal, ToPeer
from tests.support.streams import split

THREADS = {"threads": [{"id": 1, "name": "main"}]}


class Editor:
    """Talks through a client to an agent whose part the test plays."""

    def __init__(self) -> None:
        self.now = 10.0
        self.client = PrefetchCacheLayer()
        self.seq = 0

    def send(self, command: str, **arguments: object) -> tuple[list[Message], list[Message]]:
        """Send a request; return what goes on to the agent, and what comes back at once."""
        self.seq += 1
        request = {"seq": self.seq, "type": "request", "command": command, "arguments": arguments}
        onward, back = split(self.client.receive_local(encode(request), self.now))
        return parse(onward), parse(back)

    def hear(self, *messages: Message) -> list[Message]:
        """Let the agent say something; return what the editor hears."""
        return parse(split(self.client.receive_peer(b"".join(map(encode, messages)), self.now))[1])


def parse(data: bytes) -> list[Message]:
    return MessageDecoder().receive_data(data)


def stopped(thread: int = 1) -> Message:
    return {"seq": 1, "type": "event", "event": "stopped", "body": {"threadId": thread}}


def asking(editor: Editor, *commands: str, after: int | None = None) -> Message:
    """Return the news that the agent has asked these, the first as number 1000; or else after something older."""
    asked = [{"seq": 1000 + n, "type": "request", "command": command} for n, command in enumerate(commands)]
    body = {"after": editor.seq if after is None else after, "asked": asked, "answered": []}
    return {"seq": 0, "type": "event", "event": NEWS, "body": body}


def answered(body: object = THREADS, *, seq: int = 1000, success: bool = True) -> Message:
    """Return the news of an answer."""
    response = {"type": "response", "request_seq": seq, "command": "threads", "success": success, "body": body}
    return {"seq": 0, "type": "event", "event": NEWS, "body": {"after": 0, "asked": [], "answered": [response]}}


@pytest.fixture
def editor() -> Editor:
    """One that has asked for threads at a stop, and stepped on."""
    editor = Editor()
    editor.hear(stopped())
    onward, _ = editor.send("threads")
    assert ["threads"] == [message["command"] for message in onward]
    onward, _ = editor.send("next", threadId=1)
    assert [PLAN, "next"] == [message["command"] for message in onward]
    assert [{"command": "threads", "scope": 0, "rest": {}}] == onward[0]["arguments"]["questions"]
    return editor


def test_answer_that_is_there(editor):
    """The event comes at once, and a question whose answer the agent has sent is answered without the agent."""
    assert [stopped()] == editor.hear(stopped(), asking(editor, "threads"), answered())
    onward, (answer,) = editor.send("threads")
    assert onward == []
    assert (answer["request_seq"], answer["body"]) == (editor.seq, THREADS)


def test_question_and_answer_in_one(editor):
    """The agent may tell of a question when it has the answer."""
    news = asking(editor, "threads")
    news["body"]["answered"] = answered()["body"]["answered"]
    editor.hear(stopped(), news)
    onward, (answer,) = editor.send("threads")
    assert (onward, answer["body"]) == ([], THREADS)


@pytest.mark.parametrize("success", [True, False])
def test_answer_that_is_under_way(editor, success):
    """A question that the agent has asked already is not asked again: it is answered when the agent's is."""
    assert [stopped()] == editor.hear(stopped(), asking(editor, "threads"))
    assert ([], []) == editor.send("threads")
    (answer,) = editor.hear(answered(success=success))
    assert (answer["request_seq"], answer["body"], answer["success"]) == (editor.seq, THREADS, success)


def test_refusal_that_nobody_has_waited_for(editor):
    """The editor hears the debugger's own when it asks."""
    editor.hear(stopped(), asking(editor, "threads"), answered(success=False))
    assert 1 == len(editor.send("threads")[0])


@pytest.mark.parametrize("first", [[answered()], []])
def test_answer_is_given_once(editor, first):
    """Who asks again wants to know what it is now."""
    editor.hear(stopped(), asking(editor, "threads"), *first)
    editor.send("threads")
    onward, back = editor.send("threads")
    assert (["threads"], []) == ([message["command"] for message in onward], back)


def test_same_plan_is_told_once(editor):
    """An editor that asks the same at each stop causes no more messages."""
    editor.hear(stopped(), asking(editor, "threads"), answered())
    editor.send("threads")
    onward, _ = editor.send("next", threadId=1)
    assert ["next"] == [message["command"] for message in onward]


def test_editor_that_stops_asking(editor):
    """What was not asked at the last stop, though there was time to, is not asked ahead at the next."""
    editor.hear(stopped(), asking(editor, "threads"), answered())
    editor.now += PROMPT
    (plan, _), _ = editor.send("next", threadId=1)
    assert plan["arguments"] == {"questions": []}
    assert [stopped()] == editor.hear(stopped())


def test_steps_in_quick_succession(editor):
    """What an editor had no time to ask is asked ahead again: the next stop may be the one that somebody looks at."""
    for _ in range(3):
        editor.hear(stopped())
        onward, _ = editor.send("next", threadId=1)
        assert ["next"] == [message["command"] for message in onward]


@pytest.mark.parametrize(
    ("command", "arguments", "goes_on"),
    [
        ("evaluate", {"expression": "x = 1", "context": "repl"}, True),
        ("evaluate", {"expression": "x", "context": "watch"}, False),
        ("setVariable", {"name": "x"}, True),
        ("continue", {"threadId": 1}, True),
    ],
)
def test_request_that_may_change_something(editor, command, arguments, goes_on):
    """After it, the debugger is asked; what an editor evaluates by itself, at any time, is no such request."""
    editor.hear(stopped(), asking(editor, "threads"), answered())
    editor.send(command, **arguments)
    onward, back = editor.send("threads")
    assert (bool(onward), bool(back)) == (goes_on, not goes_on)


def test_answer_that_was_under_way_when_something_changed(editor):
    """It is about what was before, and is not used; the editor that has asked before is answered all the same."""
    editor.hear(stopped(), asking(editor, "threads", "stackTrace"))
    editor.send("stackTrace")
    editor.send("setVariable", name="x")
    (answer,) = editor.hear(answered(), answered(seq=1001))
    assert answer["request_seq"] == editor.seq - 1
    onward, back = editor.send("threads")
    assert (1, []) == (len(onward), back)


def test_question_that_was_asked_before_something_changed(editor):
    """At a stop that comes while the editor changes something, the agent asks too early: its answers are not used."""
    editor.send("setVariable", name="x")
    editor.hear(stopped(), asking(editor, "threads", after=editor.seq - 1), answered())
    assert 1 == len(editor.send("threads")[0])


def test_long_request(editor):
    """After a request too long to be looked into, nothing is certain until the next."""
    editor.send("evaluate", expression="x" * MAX_WHOLE)
    editor.hear(stopped(), asking(editor, "threads", after=0), answered())
    assert 1 == len(editor.send("threads")[0])


@pytest.mark.parametrize("event", ["continued", "exited", "invalidated", "terminated", "thread"])
def test_event_that_changes_something(editor, event):
    """After it, the debugger is asked."""
    editor.hear(
        stopped(), asking(editor, "threads"), answered(), {"seq": 3, "type": "event", "event": event, "body": {}}
    )
    assert 1 == len(editor.send("threads")[0])


def test_question_that_was_asked_after_a_change(editor):
    """Between such an event and the next stop nothing is answered here."""
    editor.hear(stopped(), {"seq": 3, "type": "event", "event": "continued", "body": {}})
    editor.hear(asking(editor, "threads"), answered())
    assert 1 == len(editor.send("threads")[0])


def test_nothing_is_put_into_a_long_message(editor):
    """While the agent is in the middle of a message that goes on in parts, the editor is told nothing else."""
    editor.hear(stopped(), asking(editor, "threads"), answered())
    editor.client._from_agent.max_whole = MAX_WHOLE
    long = encode({"seq": 2, "type": "event", "event": "output", "body": {"output": "x" * MAX_WHOLE}})
    assert editor.client.receive_peer(long[:1000], editor.now) == [ToLocal(long[:1000])]
    assert 1 == len(editor.send("threads")[0])


def test_old_answer(editor):
    """An answer that nobody has wanted for a while is not used."""
    editor.hear(stopped(), asking(editor, "threads"), answered())
    editor.now += KEPT + 0.1
    assert 1 == len(editor.send("threads")[0])


def test_order_of_the_plan():
    """What other questions wait for is asked first."""
    editor = Editor()
    editor.hear(stopped())
    editor.send("threads")
    editor.send("stackTrace", threadId=1)
    (plan, _), _ = editor.send("next", threadId=1)
    assert ["stackTrace", "threads"] == [question["command"] for question in plan["arguments"]["questions"]]


def test_people_are_slow():
    """What is asked long after the last answer was somebody's click, and is not asked ahead."""
    editor = Editor()
    editor.hear(stopped())
    editor.now += PROMPT + 0.01
    editor.send("threads")
    onward, _ = editor.send("next", threadId=1)
    assert ["next"] == [message["command"] for message in onward]


def test_end(editor):
    """Nothing that editor or agent have begun to say is lost."""
    client = editor.client
    assert client.receive_peer(encode(stopped()) + b"Content", editor.now) == [ToLocal(encode(stopped()))]
    assert client.receive_peer_eof(editor.now) == [ToLocal(b"Content"), EndLocal()]
    assert client.receive_local(b"Content", editor.now) == []
    assert client.receive_local_eof(editor.now) == [ToPeer(b"Content"), EndPeer()]


def test_ends(editor):
    """An end without the beginning of a message is an end only, and what was begun comes before a loss."""
    client = editor.client
    assert ([EndPeer()], [EndLocal()]) == (client.receive_local_eof(0), client.receive_peer_eof(0))
    assert [ResetLocal()] == client.receive_peer_lost(0)
    client.receive_peer(b"Content", 0)
    assert [ToLocal(b"Content"), ResetLocal()] == client.receive_peer_lost(0)


@pytest.mark.parametrize("size", [MAX_WHOLE + 1, 3_000_000])
def test_long_answer(editor, size):
    """An answer to a question of the agent may be as long as debugpy's can be."""
    editor.hear(stopped(), asking(editor, "threads"))
    editor.send("threads")
    (answer,) = editor.hear(answered("x" * size))
    assert (answer["request_seq"], len(answer["body"])) == (editor.seq, size)


@pytest.mark.parametrize("body", [None, {}, {"after": 3, "asked": 3, "answered": []}, {"after": None}])
def test_strange_news(editor, body):
    """What an agent cannot mean goes on to the editor, who passes over it; nothing breaks."""
    strange = {"seq": 0, "type": "event", "event": NEWS, "body": body}
    assert [strange] == editor.hear(strange)


@pytest.mark.parametrize("strange", [None, 3, {}, {"type": "request", "command": "threads", "seq": None}])
def test_strange_questions_and_answers(editor, strange):
    """What is neither is passed over, and so are answers without a question."""
    body = {"after": editor.seq, "asked": [strange], "answered": [strange]}
    assert [stopped()] == editor.hear(stopped(), {"seq": 0, "type": "event", "event": NEWS, "body": body}, answered())
    assert 1 == len(editor.send("threads")[0])


@pytest.mark.parametrize("early", [b"", b"Content"])
def test_connection_that_is_not_an_editors(early):
    """A layer in front of another protocol is finished, unless bytes of the other direction wait for their rest."""
    client = PrefetchCacheLayer()
    client.receive_peer(early, 0)
    assert [ToPeer(b"GET / HTTP/1.1")] == client.receive_local(b"GET / HTTP/1.1", 0)
    assert (not early) == client.is_finished


def test_editor_that_loses_its_framing(editor):
    """One that has spoken DAP keeps its layer: messages of the agent may be on their way."""
    editor.client.receive_local(b"garbage", editor.now)
    assert not editor.client.is_finished

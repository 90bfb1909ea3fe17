"""Facts about answers that a client gives its editor by itself."""

import pytest

from relay_client.answer_ahead import AT_ONCE, HOLD_LIMIT, KEPT, LATE_LIMIT, PROMPT, AnswerAhead
from relay_core.dap.ahead import ANSWER, PLAN
from relay_core.dap.framing import Message, MessageDecoder, encode

THREADS = {"threads": [{"id": 1, "name": "main"}]}


class Editor:
    """Talks through a client to an agent whose part the test plays."""

    def __init__(self) -> None:
        self.now = 10.0
        self.client = AnswerAhead()
        self.seq = 0

    def send(self, command: str, **arguments: object) -> tuple[list[Message], list[Message]]:
        """Send a request; return what goes on to the agent, and what comes back at once."""
        self.seq += 1
        request = {"seq": self.seq, "type": "request", "command": command, "arguments": arguments}
        onward, back = self.client.written(encode(request), self.now)
        return parse(onward), parse(back)

    def hear(self, *messages: Message) -> list[Message]:
        """Let the agent say something; return what the editor hears."""
        return parse(self.client.arrived(b"".join(map(encode, messages)), self.now))


def parse(data: bytes) -> list[Message]:
    return MessageDecoder().receive_data(data)


def stopped(thread: int = 1) -> Message:
    return {"seq": 1, "type": "event", "event": "stopped", "body": {"threadId": thread}}


def answers(*found: tuple[str, dict[str, object], object], left: int = 0) -> Message:
    said = [
        {
            "request": {"command": command, "arguments": arguments},
            "response": {"type": "response", "request_seq": 7, "command": command, "success": True, "body": body},
        }
        for command, arguments, body in found
    ]
    return {"seq": 0, "type": "event", "event": ANSWER, "body": {"answers": said, "left": left}}


@pytest.fixture
def editor() -> Editor:
    """One that has asked for threads at a stop, and stepped on."""
    editor = Editor()
    editor.hear(stopped())
    onward, _ = editor.send("threads")
    assert ["threads"] == [message["command"] for message in onward]
    onward, _ = editor.send("next", threadId=1)
    assert [PLAN, "next"] == [message["command"] for message in onward]
    assert [{"command": "threads", "scope": 0, "rest": {}, "at_once": True}] == onward[0]["arguments"]["questions"]
    return editor


def test_stop_is_told_when_its_answers_are_there(editor):
    """The event, and what follows it, waits for the answers; then the question is answered without the agent."""
    output = {"seq": 2, "type": "event", "event": "output", "body": {"output": "x"}}
    assert [] == editor.hear(stopped(), output)
    assert [stopped(), output] == editor.hear(answers(("threads", {}, THREADS)))
    onward, (answer,) = editor.send("threads")
    assert onward == []
    assert (answer["request_seq"], answer["body"]) == (editor.seq, THREADS)


def test_answer_is_given_once(editor):
    """Who asks again wants to know what it is now."""
    editor.hear(stopped(), answers(("threads", {}, THREADS)))
    editor.send("threads")
    onward, back = editor.send("threads")
    assert (["threads"], []) == ([message["command"] for message in onward], back)


def test_same_plan_is_told_once(editor):
    """An editor that asks the same at each stop causes no more messages."""
    editor.hear(stopped(), answers(("threads", {}, THREADS)))
    editor.send("threads")
    onward, _ = editor.send("next", threadId=1)
    assert ["next"] == [message["command"] for message in onward]


def test_editor_that_stops_asking(editor):
    """What was not asked at the last stop is not asked ahead at the next."""
    editor.hear(stopped(), answers(("threads", {}, THREADS)))
    (plan, _), _ = editor.send("next", threadId=1)
    assert plan["arguments"] == {"questions": []}
    assert [stopped()] == editor.hear(stopped())


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
    editor.hear(stopped(), answers(("threads", {}, THREADS)))
    editor.send(command, **arguments)
    onward, back = editor.send("threads")
    assert (bool(onward), bool(back)) == (goes_on, not goes_on)


def test_answer_that_was_under_way_when_something_changed(editor):
    """It is about what was before, and is not used."""
    editor.hear(stopped())
    editor.now += HOLD_LIMIT
    assert [stopped()] == parse(editor.client.expired(editor.now))
    editor.send("setVariable", name="x")
    assert [] == editor.hear(answers(("threads", {}, THREADS)))
    onward, back = editor.send("threads")
    assert (1, []) == (len(onward), back)


@pytest.mark.parametrize("event", ["continued", "exited", "invalidated", "terminated", "thread"])
def test_event_that_changes_something(editor, event):
    """After it, the debugger is asked."""
    editor.hear(stopped(), answers(("threads", {}, THREADS)), {"seq": 3, "type": "event", "event": event, "body": {}})
    assert 1 == len(editor.send("threads")[0])


def test_old_answer(editor):
    """An answer that nobody has wanted for a while is not used."""
    editor.hear(stopped(), answers(("threads", {}, THREADS)))
    editor.now += KEPT + 0.1
    assert 1 == len(editor.send("threads")[0])


def test_late_answers(editor):
    """The stop is told in time without them, and in the end they are not waited for any more."""
    for late in range(LATE_LIMIT):
        assert [] == editor.hear(stopped())
        assert editor.client.deadline == pytest.approx(editor.now + HOLD_LIMIT)
        editor.now += HOLD_LIMIT
        assert [stopped()] == parse(editor.client.expired(editor.now))
        assert editor.client.deadline is None
        editor.send("threads")
        onward, _ = editor.send("next", threadId=1)
        assert len(onward) == (2 if late == LATE_LIMIT - 1 else 1)
    assert [stopped()] == editor.hear(stopped())


def test_editor_that_takes_its_time():
    """What it asks a moment later is in the plan too, and so is what it asks after that; no stop waits for it."""
    editor = Editor()
    editor.hear(stopped())
    editor.now += AT_ONCE + 0.01
    editor.send("threads")
    editor.send("stackTrace", threadId=1)
    (plan, _), _ = editor.send("next", threadId=1)
    assert [False, False] == [question["at_once"] for question in plan["arguments"]["questions"]]
    assert [stopped()] == editor.hear(stopped())
    assert [] == editor.hear(answers(("threads", {}, THREADS)))
    onward, (answer,) = editor.send("threads")
    assert (onward, answer["body"]) == ([], THREADS)


def test_people_are_slow():
    """What is asked long after the last answer was somebody's click, and is not asked ahead."""
    editor = Editor()
    editor.hear(stopped())
    editor.now += PROMPT + 0.01
    editor.send("threads")
    onward, _ = editor.send("next", threadId=1)
    assert ["next"] == [message["command"] for message in onward]


def test_end_while_a_stop_is_kept_back(editor):
    """Nothing that the agent has said is lost."""
    editor.client.arrived(encode(stopped()) + b"Content", editor.now)
    assert editor.client.arrived_end() == encode(stopped()) + b"Content"
    assert editor.client.deadline is None
    editor.client.written(b"Content", editor.now)
    assert editor.client.written_end() == b"Content"


@pytest.mark.parametrize("body", [None, {}, {"answers": 3, "left": 0}, {"answers": [], "left": None}])
def test_strange_news(editor, body):
    """What an agent cannot mean goes on to the editor, who passes over it; nothing breaks."""
    strange = {"seq": 0, "type": "event", "event": ANSWER, "body": body}
    assert [strange] == editor.hear(strange)


def test_strange_answers(editor):
    """Answers without a question are passed over."""
    editor.hear(stopped())
    strange = {"seq": 0, "type": "event", "event": ANSWER, "body": {"answers": [None, {}, {"request": {}}], "left": 0}}
    assert [stopped()] == editor.hear(strange)

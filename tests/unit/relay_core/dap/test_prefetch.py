"""Facts about the questions of an editor at a stop."""

import json

import pytest

from relay_core.dap.prefetch import Question, Stop, changes_nothing, parse

FRAMES = {"stackFrames": [{"id": 7}, {"id": 8}]}
SCOPES = {"scopes": [{"name": "Locals", "variablesReference": 21}, {"name": "Globals", "variablesReference": 22}]}


@pytest.fixture
def stop() -> Stop:
    """A stop of thread 1 about which everything is known."""
    stop = Stop(1)
    stop.learn("stackTrace", {"threadId": 1, "startFrame": 0}, FRAMES)
    stop.learn("scopes", {"frameId": 7}, SCOPES)
    return stop


QUESTIONS = [
    ("threads", {}, Question("threads")),
    ("stackTrace", {"threadId": 1, "levels": 1}, Question("stackTrace", 0, {"levels": 1})),
    ("scopes", {"frameId": 7}, Question("scopes")),
    ("variables", {"variablesReference": 22, "count": 5}, Question("variables", 1, {"count": 5})),
]


@pytest.mark.parametrize(("command", "arguments", "question"), QUESTIONS)
def test_question_and_request(stop, command, arguments, question):
    """A request is recognised as the question it asks at any stop, and the question leads back to the request."""
    assert stop.recognise(command, arguments) == question
    assert stop.arguments(question) == arguments
    assert Question.parse(json.loads(json.dumps(question.as_json()))) == question


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("stackTrace", {"threadId": 2}),
        ("scopes", {"frameId": 8}),
        ("scopes", {}),
        ("variables", {"variablesReference": 99}),
        ("evaluate", {"expression": "x"}),
        ("source", {}),
    ],
)
def test_other_requests(stop, command, arguments):
    """What is about another thread, frame or object, or changes something, is no such question."""
    assert stop.recognise(command, arguments) is None


def test_nothing_is_known_at_first():
    """Only what is about the thread can be asked before there are answers."""
    stop = Stop(1)
    assert [True, True, False, False] == [stop.arguments(question) is not None for _, _, question in QUESTIONS]


@pytest.mark.parametrize(
    ("command", "arguments", "body"),
    [
        ("stackTrace", {"threadId": 2}, {"stackFrames": [{"id": 9}]}),
        ("stackTrace", {"threadId": 1, "startFrame": 1}, {"stackFrames": [{"id": 9}]}),
        ("stackTrace", {"threadId": 1}, {"stackFrames": []}),
        ("stackTrace", {"threadId": 1}, {"stackFrames": [None]}),
        ("stackTrace", {"threadId": 1}, None),
        ("scopes", {"frameId": 8}, {"scopes": [{"variablesReference": 1}]}),
        ("scopes", {"frameId": 8}, {"scopes": 3}),
    ],
)
def test_answers_about_something_else(stop, command, arguments, body):
    """Answers about other threads and frames, and strange ones, change nothing."""
    before = repr(stop)
    stop.learn(command, arguments, body)
    assert repr(stop) == before


@pytest.mark.parametrize(
    "found",
    [None, [], {}, {"command": "threads"}, {"command": "evaluate", "scope": 0, "rest": {}}]
    + [{"command": "variables", "scope": scope, "rest": {}} for scope in (-1, "0", None)],
)
def test_no_question(found):
    """What is no question is refused."""
    assert Question.parse(found) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"type":"event"}', b"[" * 100_000])
def test_no_request(body):
    """What is no message of the wanted kind is None."""
    assert parse(body, "request") is None


@pytest.mark.parametrize(
    ("command", "arguments", "changes"),
    [
        ("threads", None, False),
        ("variables", {"variablesReference": 3}, False),
        ("evaluate", {"context": "watch"}, False),
        ("evaluate", {"context": "hover"}, False),
        ("evaluate", {"context": "repl"}, True),
        ("evaluate", None, True),
        ("next", {"threadId": 1}, True),
        ("setVariable", {}, True),
    ],
)
def test_what_may_change_something(command, arguments, changes):
    """All requests but questions, and what an editor evaluates by itself."""
    assert changes_nothing({"command": command, "arguments": arguments}) is not changes


def test_what_nobody_can_read_may_change_something():
    """A message that is no request counts as one."""
    assert not changes_nothing({})

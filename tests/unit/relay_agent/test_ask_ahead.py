"""Facts about what an agent asks a debugger ahead."""

import json

import pytest

from relay_agent.ask_ahead import LONG, PATIENCE, SLOW, AskAhead
from relay_core.dap.ahead import NEWS, PLAN, Question
from relay_core.dap.cutting import MAX_WHOLE
from relay_core.dap.framing import Message, MessageDecoder, encode

STACK = Question("stackTrace", 0, {"startFrame": 0, "levels": 1})
LATER = Question("stackTrace", 0, {"startFrame": 1})
ALL = [STACK, Question("scopes"), Question("variables"), LATER, Question("threads")]
STOPPED = encode({"seq": 9, "type": "event", "event": "stopped", "body": {"threadId": 1, "reason": "step"}})


def plan(questions: list[Question]) -> bytes:
    arguments = {"questions": [question.as_json() for question in questions]}
    return encode({"seq": 0, "type": "request", "command": PLAN, "arguments": arguments})


def parse(data: bytes) -> list[Message]:
    return MessageDecoder().receive_data(data)


def response(request: Message, body: object, *, success: bool = True) -> bytes:
    fields = {"seq": 10, "type": "response", "request_seq": request["seq"], "command": request["command"]}
    return encode({**fields, "success": success, "body": body})


def news(onward: bytes) -> tuple[list[str], list[str], int]:
    """Return which commands the client is told of, as asked and as answered, and after which request."""
    (told,) = parse(onward)
    assert told["event"] == NEWS
    body = told["body"]
    return [request["command"] for request in body["asked"]], [r["command"] for r in body["answered"]], body["after"]


@pytest.fixture
def asker() -> AskAhead:
    """An agent whose client has a plan."""
    asker = AskAhead()
    assert asker.arrived(plan(ALL), 0) == b""
    return asker


def tell(asker: AskAhead, data: bytes, now: float = 0.0) -> tuple[bytes, list[Message]]:
    """Let debugpy say something; return what goes on to the client, and what debugpy is asked."""
    onward, requests = asker.written(data, now)
    return onward, parse(requests)


def step(asker: AskAhead) -> None:
    """The editor resumes, with request 6."""
    request = encode({"seq": 6, "type": "request", "command": "next", "arguments": {"threadId": 1}})
    assert asker.arrived(request, 0) == request


def test_each_question_is_asked_as_soon_as_its_ids_are_known(asker):
    """Frame and scope ids come from the answers before; the client is told of every question and every answer."""
    step(asker)
    onward, (stack, rest, threads) = tell(asker, STOPPED)
    assert onward.startswith(STOPPED)
    assert (["stackTrace", "stackTrace", "threads"], [], 6) == news(onward[len(STOPPED) :])
    assert (stack["command"], stack["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 0, "levels": 1})
    assert (rest["command"], rest["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 1})
    assert (threads["command"], threads["arguments"]) == ("threads", {})
    onward, (scopes,) = tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))
    assert (onward, scopes["arguments"]) == (b"", {"frameId": 7})
    assert (b"", []) == tell(asker, response(threads, {"threads": []}))
    assert (b"", []) == tell(asker, response(rest, {"stackFrames": []}))
    onward, (variables,) = tell(asker, response(scopes, {"scopes": [{"variablesReference": 21}]}))
    assert variables["arguments"] == {"variablesReference": 21}
    answers = ["stackTrace", "threads", "stackTrace", "scopes"]
    assert (["scopes", "variables"], answers, 6) == news(onward)  # nothing waits for variables
    onward, requests = tell(asker, response(variables, {"variables": [{"name": "é"}]}))
    assert (([], ["variables"], 6), []) == (news(onward), requests)
    (answer,) = parse(onward)[0]["body"]["answered"]
    assert (answer["request_seq"], answer["body"]) == (variables["seq"], {"variables": [{"name": "é"}]})


def test_nobody_has_a_plan():
    """Without a plan every byte goes on, and nothing is asked."""
    asker = AskAhead()
    assert asker.written(STOPPED + STOPPED[:20], 0) == (STOPPED, b"")
    assert asker.written_end() == STOPPED[:20]
    request = encode({"seq": 1, "type": "request", "command": "next"})
    assert asker.arrived(request + request[:3], 0) == request
    assert asker.arrived_end() == request[:3]


def test_answers_to_the_editor_go_on(asker):
    """What the editor has asked itself is answered in its place, in the middle of all this."""
    tell(asker, STOPPED)
    own = response({"seq": 5, "command": "threads"}, {"threads": []})
    assert tell(asker, own) == (own, [])


@pytest.mark.parametrize("body", [{"stackFrames": []}, None])
def test_a_question_that_can_never_be_asked(asker, body):
    """At a stop without frames there is nothing else to ask about."""
    asker.arrived(plan(ALL[:3]), 0)
    _, (stack,) = tell(asker, STOPPED)
    onward, requests = tell(asker, response(stack, body))
    assert (([], ["stackTrace"], 0), []) == (news(onward), requests)


def test_refusal_ends_the_round(asker):
    """If debugpy refuses, the process runs again: nothing more is asked."""
    asker.arrived(plan([STACK, LATER, Question("scopes")]), 0)
    _, (stack, rest) = tell(asker, STOPPED)
    tell(asker, response(rest, None, success=False))
    onward, requests = tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))
    assert (([], ["stackTrace", "stackTrace"], 0), []) == (news(onward), requests)


def test_editor_that_goes_on_ends_the_round(asker):
    """After a request that may change something nothing more is asked; the client, which may wait, hears answers.

    What it hears late was asked before that request, and is told so.
    """
    asker.arrived(plan([STACK, Question("scopes")]), 0)
    _, (stack,) = tell(asker, STOPPED)
    _, (scopes,) = tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))
    step(asker)
    onward, requests = tell(asker, response(scopes, {"scopes": [{"variablesReference": 21}]}))
    assert ((["scopes"], ["stackTrace", "scopes"], 0), []) == (news(onward), requests)


def test_watch_expression_does_not_end_the_round(asker):
    """What an editor evaluates by itself stops nothing."""
    _, (stack, *_) = tell(asker, STOPPED)
    arguments = {"expression": "x", "context": "watch"}
    asker.arrived(encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": arguments}), 0)
    assert 1 == len(tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))[1])


def test_next_stop_ends_the_round(asker):
    """Nothing is asked about the stop before when there is a new one."""
    _, (old, *_) = tell(asker, STOPPED)
    _, (new, *_) = tell(asker, STOPPED)
    onward, requests = tell(asker, response(old, {"stackFrames": [{"id": 7}]}))
    assert (([], ["stackTrace"], 0), []) == (news(onward), requests)
    _, (scopes,) = tell(asker, response(new, {"stackFrames": [{"id": 8}]}))
    assert scopes["arguments"] == {"frameId": 8}


@pytest.mark.parametrize(("text", "seconds"), [("", SLOW + 0.01), ("x" * LONG, 0.0)])
def test_question_that_costs_much(asker, text, seconds):
    """What was slow or long three times on end is not asked ahead any more; before, it was in time once."""
    asker.arrived(plan([STACK]), 0)
    costs = [True] * (PATIENCE - 1) + [False] + [True] * PATIENCE
    for costly in costs:
        _, (stack,) = tell(asker, STOPPED)
        body = {"stackFrames": [{"id": 7}], "text": text if costly else ""}
        onward, _ = tell(asker, response(stack, body), seconds if costly else 0.0)
        assert ([], ["stackTrace"], 0) == news(onward)
    assert (STOPPED, []) == tell(asker, STOPPED)
    asker.arrived(plan([STACK]), 0)
    assert 1 == len(tell(asker, STOPPED)[1])


def test_nothing_is_put_into_a_long_request(asker):
    """While the editor is in the middle of a long message, debugpy is asked nothing."""
    long = encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": {"expression": "x" * 300_000}})
    assert asker.arrived(long[:1000], 0) == long[:1000]
    assert (STOPPED, []) == tell(asker, STOPPED)


@pytest.mark.parametrize("text", ["stopped", PLAN, NEWS])
def test_what_only_looks_like_it(asker, text):
    """Output that contains these words is output, and code that does so is code."""
    output = encode({"seq": 9, "type": "event", "event": "output", "body": {"output": json.dumps(text)}})
    assert tell(asker, output) == (output, [])
    evaluation = encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": {"expression": text}})
    assert asker.arrived(evaluation, 0) == evaluation


def test_long_answer(asker):
    """However long it is, an answer to a question of the agent is no answer to the editor."""
    asker.arrived(plan([STACK]), 0)
    _, (stack,) = tell(asker, STOPPED)
    onward, _ = tell(asker, response(stack, {"stackFrames": [{"id": 7}], "text": "x" * MAX_WHOLE}))
    assert ([], ["stackTrace"], 0) == news(onward)


def test_long_answers_travel_alone(asker):
    """No news is longer than a client takes: a long answer does not wait for others."""
    _, (stack, *_) = tell(asker, STOPPED)
    onward, _ = tell(asker, response(stack, {"stackFrames": [{"id": 7}], "text": "x" * LONG}))
    assert (["scopes"], ["stackTrace"], 0) == news(onward)


@pytest.mark.parametrize(
    "arguments", [{}, {"questions": 3}, {"questions": [3, {"command": "evaluate", "scope": 0, "rest": {}}]}]
)
def test_strange_plan(asker, arguments):
    """Questions that no agent may ask are left out."""
    strange = encode({"seq": 0, "type": "request", "command": PLAN, "arguments": arguments})
    assert asker.arrived(strange, 0) == b""
    assert tell(asker, STOPPED) == (STOPPED, [])

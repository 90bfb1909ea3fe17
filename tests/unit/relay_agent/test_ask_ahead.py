"""Facts about what an agent asks a debugger ahead."""

import json

import pytest

from relay_agent.ask_ahead import AskAhead
from relay_core.dap.ahead import ANSWER, MAX_ANSWER, PLAN, Question
from relay_core.dap.framing import Message, MessageDecoder, encode

STACK = Question("stackTrace", 0, {"startFrame": 0, "levels": 1})
LATER = Question("stackTrace", 0, {"startFrame": 1}, at_once=False)
ALL = [STACK, Question("scopes"), Question("variables"), Question("threads"), LATER]
STOPPED = encode({"seq": 9, "type": "event", "event": "stopped", "body": {"threadId": 1, "reason": "step"}})


def plan(questions: list[Question]) -> bytes:
    arguments = {"questions": [question.as_json() for question in questions]}
    return encode({"seq": 0, "type": "request", "command": PLAN, "arguments": arguments})


def parse(data: bytes) -> list[Message]:
    return MessageDecoder().receive_data(data)


def response(request: Message, body: object, *, success: bool = True) -> bytes:
    fields = {"seq": 10, "type": "response", "request_seq": request["seq"], "command": request["command"]}
    return encode({**fields, "success": success, "body": body})


def commands_and_left(onward: bytes) -> tuple[list[str], int]:
    """Return which answers the client is told, and how many are still to come that are wanted at once."""
    (news,) = parse(onward)
    assert news["event"] == ANSWER
    return [answer["response"]["command"] for answer in news["body"]["answers"]], news["body"]["left"]


@pytest.fixture
def asker() -> AskAhead:
    """An agent whose client has a plan."""
    asker = AskAhead()
    assert asker.arrived(plan(ALL), 0) == b""
    return asker


def tell(asker: AskAhead, data: bytes) -> tuple[bytes, list[Message]]:
    """Let debugpy say something; return what goes on to the client, and what debugpy is asked."""
    onward, requests = asker.written(data, 0)
    return onward, parse(requests)


def test_each_question_is_asked_as_soon_as_its_ids_are_known(asker):
    """Frame and scope ids come from the answers before; all answers go to the client, and what is missing."""
    onward, (stack, threads) = tell(asker, STOPPED)
    assert onward == STOPPED
    assert (stack["command"], stack["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 0, "levels": 1})
    assert (threads["command"], threads["arguments"]) == ("threads", {})
    onward, (scopes,) = tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))
    assert (onward, scopes["arguments"]) == (b"", {"frameId": 7})
    assert tell(asker, response(threads, {"threads": []})) == (b"", [])
    onward, (variables,) = tell(asker, response(scopes, {"scopes": [{"variablesReference": 21}]}))
    assert (onward, variables["arguments"]) == (b"", {"variablesReference": 21})
    onward, (rest,) = tell(asker, response(variables, {"variables": [{"name": "é"}]}))
    assert rest["arguments"] == {"threadId": 1, "startFrame": 1}
    assert (["stackTrace", "threads", "scopes", "variables"], 0) == commands_and_left(onward)
    onward, requests = tell(asker, response(rest, {"stackFrames": []}))
    assert ((["stackTrace"], 0), []) == (commands_and_left(onward), requests)


def test_nothing_waits_for_variables(asker):
    """While the text of variables is made, the client has all the other answers."""
    asker.arrived(plan(ALL[:3]), 0)
    _, (stack,) = tell(asker, STOPPED)
    _, (scopes,) = tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))
    onward, (variables,) = tell(asker, response(scopes, {"scopes": [{"variablesReference": 21}]}))
    assert (["stackTrace", "scopes"], 1) == commands_and_left(onward)
    onward, _ = tell(asker, response(variables, {"variables": [{"name": "é"}]}))
    assert (["variables"], 0) == commands_and_left(onward)
    assert [{"name": "é"}] == parse(onward)[0]["body"]["answers"][0]["response"]["body"]["variables"]


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
    """A stop without frames ends the round with what there is."""
    asker.arrived(plan(ALL[:3]), 0)
    _, (stack,) = tell(asker, STOPPED)
    onward, requests = tell(asker, response(stack, body))
    assert requests == []
    assert (0, 1) == (parse(onward)[0]["body"]["left"], len(parse(onward)[0]["body"]["answers"]))


def test_refusal_ends_the_round(asker):
    """If debugpy refuses, the process runs again: nothing more is asked, and the client waits for nothing."""
    asker.arrived(plan(ALL[:3]), 0)
    _, (stack,) = tell(asker, STOPPED)
    onward, requests = tell(asker, response(stack, None, success=False))
    assert (requests, commands_and_left(onward)) == ([], ([], 0))


def test_editor_that_goes_on_ends_the_round(asker):
    """After any request but a question of the editor nothing more is asked, and late answers are kept from it."""
    _, (stack, _) = tell(asker, STOPPED)
    step = encode({"seq": 6, "type": "request", "command": "next", "arguments": {"threadId": 1}})
    assert asker.arrived(step, 0) == step
    assert tell(asker, response(stack, {"stackFrames": [{"id": 7}]})) == (b"", [])


def test_next_stop_ends_the_round(asker):
    """Answers about the stop before are dropped when there is a new one."""
    _, (old, _) = tell(asker, STOPPED)
    _, (new, _) = tell(asker, STOPPED)
    assert tell(asker, response(old, {"stackFrames": [{"id": 7}]})) == (b"", [])
    _, (scopes,) = tell(asker, response(new, {"stackFrames": [{"id": 8}]}))
    assert scopes["arguments"] == {"frameId": 8}


def test_nothing_is_put_into_a_long_request(asker):
    """While the editor is in the middle of a long message, debugpy is asked nothing, and the client is told so."""
    long = encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": {"expression": "x" * 300_000}})
    assert asker.arrived(long[:1000], 0) == long[:1000]
    onward, requests = tell(asker, STOPPED)
    assert requests == []
    assert onward.startswith(STOPPED)
    assert parse(onward)[1]["body"] == {"answers": [], "left": 0}


@pytest.mark.parametrize("text", ["stopped", PLAN, ANSWER])
def test_what_only_looks_like_it(asker, text):
    """Output that contains these words is output, and code that does so is code."""
    output = encode({"seq": 9, "type": "event", "event": "output", "body": {"output": json.dumps(text)}})
    assert tell(asker, output) == (output, [])
    evaluation = encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": {"expression": text}})
    assert asker.arrived(evaluation, 0) == evaluation


def test_long_answer(asker):
    """An answer that is too long is kept from the editor, and from the client: the editor may ask for it."""
    asker.arrived(plan(ALL[:1]), 0)
    _, (stack,) = tell(asker, STOPPED)
    onward, _ = tell(asker, response(stack, {"stackFrames": [{"id": 7}], "text": "x" * MAX_ANSWER}))
    assert ([], 0) == commands_and_left(onward)


@pytest.mark.parametrize(
    "arguments", [{}, {"questions": 3}, {"questions": [3, {"command": "evaluate", "scope": 0, "rest": {}}]}]
)
def test_strange_plan(asker, arguments):
    """Questions that no agent may ask are left out."""
    strange = encode({"seq": 0, "type": "request", "command": PLAN, "arguments": arguments})
    assert asker.arrived(strange, 0) == b""
    assert tell(asker, STOPPED) == (STOPPED, [])

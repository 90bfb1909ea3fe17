"""Facts about which questions of a plan are asked at a stop, and what the client is told of them."""

import pytest

from relay_agent.prefetch.engine import LONG, PATIENCE, SLOW, Asking, Said
from relay_core.dap.framing import Message
from relay_core.dap.prefetch import PREFETCH_EVENT, RequestTemplate

STACK = RequestTemplate("stackTrace", 0, {"startFrame": 0, "levels": 1})
LATER = RequestTemplate("stackTrace", 0, {"startFrame": 1})
ALL = [STACK, RequestTemplate("scopes"), RequestTemplate("variables"), LATER, RequestTemplate("threads")]


def planned(*questions: RequestTemplate) -> Asking:
    asking = Asking()
    asking.plan([question.as_json() for question in questions])
    return asking


def response(request: Message, body: object = None, *, success: bool = True) -> Message:
    return {"type": "response", "request_seq": request["seq"], "success": success, "body": body}


def answer(asking: Asking, request: Message, body: object = None, *, size: int = 0, now: float = 0.0) -> Said:
    """Debugpy answers one of the questions."""
    found = response(request, body)
    assert asking.has_asked(found)
    return asking.answered(found, size, now)


def told(said: Said) -> tuple[list[str], list[int]]:
    """Return the commands that the client is told as asked, and the numbers of what it is told as answered."""
    assert said.news is not None
    assert said.news["event"] == PREFETCH_EVENT
    body = said.news["body"]
    assert body["after"] == 6
    return [request["command"] for request in body["asked"]], [answer["request_seq"] for answer in body["answered"]]


def test_each_question_is_asked_as_soon_as_its_ids_are_known():
    """Frame and scope ids come from the answers before; the client is told of every question and every answer."""
    asking = planned(*ALL)
    said = asking.stopped(1, 6, 0)
    stack, rest, threads = said.requests
    assert (["stackTrace", "stackTrace", "threads"], []) == told(said)
    assert (stack["command"], stack["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 0, "levels": 1})
    assert (rest["command"], rest["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 1})
    assert (threads["command"], threads["arguments"]) == ("threads", {})
    said = answer(asking, stack, {"stackFrames": [{"id": 7}]})
    (scopes,) = said.requests
    assert (said.news, scopes["arguments"]) == (None, {"frameId": 7})
    assert Said([], None) == answer(asking, threads, {"threads": []})
    assert Said([], None) == answer(asking, rest, {"stackFrames": []})
    said = answer(asking, scopes, {"scopes": [{"variablesReference": 21}]})
    (variables,) = said.requests
    assert variables["arguments"] == {"variablesReference": 21}
    answers = [stack["seq"], threads["seq"], rest["seq"], scopes["seq"]]
    assert (["scopes", "variables"], answers) == told(said)  # nothing waits for variables
    said = answer(asking, variables, {"variables": [{"name": "é"}]})
    assert (([], [variables["seq"]]), []) == (told(said), said.requests)
    assert said.news["body"]["answered"][0]["body"] == {"variables": [{"name": "é"}]}
    assert not asking.is_waiting


def test_nobody_has_a_plan():
    """Without a plan nothing is asked, and nothing is told."""
    assert Asking().stopped(1, 6, 0) == Said([], None)


def test_answers_to_others():
    """What somebody else has asked is not its answer."""
    asking = planned(*ALL)
    asking.stopped(1, 6, 0)
    assert not asking.has_asked(response({"seq": 5}))


@pytest.mark.parametrize("body", [{"stackFrames": []}, None])
def test_a_question_that_can_never_be_asked(body):
    """At a stop without frames there is nothing else to ask about."""
    asking = planned(*ALL[:3])
    (stack,) = asking.stopped(1, 6, 0).requests
    said = answer(asking, stack, body)
    assert (([], [stack["seq"]]), []) == (told(said), said.requests)


def test_refusal_ends_the_round():
    """If debugpy refuses, the process runs again: nothing more is asked."""
    asking = planned(STACK, LATER, RequestTemplate("scopes"))
    stack, rest = asking.stopped(1, 6, 0).requests
    asking.answered(response(rest, success=False), 0, 0)
    said = answer(asking, stack, {"stackFrames": [{"id": 7}]})
    assert (([], [rest["seq"], stack["seq"]]), []) == (told(said), said.requests)


def test_change_ends_the_round():
    """After it nothing more is asked; what was told as asked is told as answered, because somebody may wait for it."""
    asking = planned(STACK, LATER, RequestTemplate("scopes"))
    stack, rest = asking.stopped(1, 6, 0).requests
    (scopes,) = answer(asking, stack, {"stackFrames": [{"id": 7}]}).requests
    asking.end_round()
    said = answer(asking, scopes, {"scopes": [{"variablesReference": 21}]})
    assert (([], [stack["seq"]]), []) == (told(said), said.requests)  # of scopes it has not been told
    said = answer(asking, rest, {"stackFrames": []})
    assert (([], [rest["seq"]]), []) == (told(said), said.requests)


def test_next_stop_ends_the_round():
    """Nothing is asked about the stop before when there is a new one."""
    asking = planned(*ALL)
    old = asking.stopped(1, 6, 0).requests[0]
    new = asking.stopped(1, 6, 0).requests[0]
    said = answer(asking, old, {"stackFrames": [{"id": 7}]})
    assert (([], [old["seq"]]), []) == (told(said), said.requests)
    (scopes,) = answer(asking, new, {"stackFrames": [{"id": 8}]}).requests
    assert scopes["arguments"] == {"frameId": 8}


@pytest.mark.parametrize(("size", "seconds"), [(0, SLOW + 0.01), (LONG + 1, 0.0)])
def test_question_that_costs_much(size, seconds):
    """What was slow or long three times on end is not asked ahead any more; before, it was in time once."""
    asking = planned(STACK)
    costs = [True] * (PATIENCE - 1) + [False] + [True] * PATIENCE
    for costly in costs:
        (stack,) = asking.stopped(1, 6, 0).requests
        cost = {"size": size, "now": seconds} if costly else {}
        assert ([], [stack["seq"]]) == told(answer(asking, stack, {"stackFrames": [{"id": 7}]}, **cost))
    assert Said([], None) == asking.stopped(1, 6, 0)
    asking.plan([STACK.as_json()])
    assert 1 == len(asking.stopped(1, 6, 0).requests)


def test_long_answers_travel_alone():
    """No news is longer than a client takes: a long answer does not wait for others."""
    asking = planned(*ALL)
    stack, *_ = asking.stopped(1, 6, 0).requests
    said = answer(asking, stack, {"stackFrames": [{"id": 7}]}, size=LONG + 1)
    assert (["scopes"], [stack["seq"]]) == told(said)


@pytest.mark.parametrize("questions", [None, 3, [3, {"command": "evaluate", "scope": 0, "rest": {}}]])
def test_strange_plan(questions):
    """Questions that nobody may ask ahead are left out."""
    asking = planned(*ALL)
    asking.plan(questions)
    assert Said([], None) == asking.stopped(1, 6, 0)

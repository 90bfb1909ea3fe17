"""Facts about the requests that are prefetched at a stop, and the events that the client receives."""

import pytest

from relay_agent.prefetch.engine import COSTLY_LIMIT, LARGE, SLOW, PrefetchEngine, PrefetchOutput
from relay_core.dap.framing import Message
from relay_core.dap.prefetch import PREFETCH_EVENT, RequestTemplate

STACK = RequestTemplate("stackTrace", 0, {"startFrame": 0, "levels": 1})
LATER = RequestTemplate("stackTrace", 0, {"startFrame": 1})
ALL = [STACK, RequestTemplate("scopes"), RequestTemplate("variables"), LATER, RequestTemplate("threads")]


def engine_with(*templates: RequestTemplate) -> PrefetchEngine:
    engine = PrefetchEngine()
    engine.replace_set([template.as_json() for template in templates])
    return engine


def response(request: Message, body: object = None, *, success: bool = True) -> Message:
    return {"type": "response", "request_seq": request["seq"], "success": success, "body": body}


def answer(
    engine: PrefetchEngine, request: Message, body: object = None, *, size: int = 0, now: float = 0.0
) -> PrefetchOutput:
    """Let debugpy answer a prefetch request."""
    found = response(request, body)
    assert engine.has_requested(found)
    return engine.response_received(found, size, now)


def contents(output: PrefetchOutput) -> tuple[list[str], list[int]]:
    """Return the commands of the requests in an event, and the request numbers of its responses."""
    assert output.event is not None
    assert output.event["event"] == PREFETCH_EVENT
    body = output.event["body"]
    assert body["after"] == 6
    return [request["command"] for request in body["requested"]], [
        answer["request_seq"] for answer in body["responses"]
    ]


def test_each_request_is_sent_when_its_ids_are_known():
    """Frame and scope ids come from earlier responses; events have every request and every response."""
    engine = engine_with(*ALL)
    output = engine.begin_stop(1, 6, 0)
    stack, rest, threads = output.requests
    assert (["stackTrace", "stackTrace", "threads"], []) == contents(output)
    assert (stack["command"], stack["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 0, "levels": 1})
    assert (rest["command"], rest["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 1})
    assert (threads["command"], threads["arguments"]) == ("threads", {})
    output = answer(engine, stack, {"stackFrames": [{"id": 7}]})
    (scopes,) = output.requests
    assert (output.event, scopes["arguments"]) == (None, {"frameId": 7})
    assert PrefetchOutput([], None) == answer(engine, threads, {"threads": []})
    assert PrefetchOutput([], None) == answer(engine, rest, {"stackFrames": []})
    output = answer(engine, scopes, {"scopes": [{"variablesReference": 21}]})
    (variables,) = output.requests
    assert variables["arguments"] == {"variablesReference": 21}
    answers = [stack["seq"], threads["seq"], rest["seq"], scopes["seq"]]
    assert (["scopes", "variables"], answers) == contents(output)  # variables is not waited for
    output = answer(engine, variables, {"variables": [{"name": "é"}]})
    assert (([], [variables["seq"]]), []) == (contents(output), output.requests)
    assert output.event["body"]["responses"][0]["body"] == {"variables": [{"name": "é"}]}
    assert not engine.is_waiting


def test_without_a_prefetch_set():
    """Without a prefetch set neither requests nor events are sent."""
    assert PrefetchEngine().begin_stop(1, 6, 0) == PrefetchOutput([], None)


def test_responses_to_other_requests():
    """A response to a request of the editor is not taken for a prefetched one."""
    engine = engine_with(*ALL)
    engine.begin_stop(1, 6, 0)
    assert not engine.has_requested(response({"seq": 5}))


@pytest.mark.parametrize("body", [{"stackFrames": []}, None])
def test_a_stop_without_frames(body):
    """At a stop without frames, requests about frames are not sent."""
    engine = engine_with(*ALL[:3])
    (stack,) = engine.begin_stop(1, 6, 0).requests
    output = answer(engine, stack, body)
    assert (([], [stack["seq"]]), []) == (contents(output), output.requests)


def test_failure_ends_the_stop():
    """If a request fails, the process has resumed: no more requests are sent."""
    engine = engine_with(STACK, LATER, RequestTemplate("scopes"))
    stack, rest = engine.begin_stop(1, 6, 0).requests
    engine.response_received(response(rest, success=False), 0, 0)
    output = answer(engine, stack, {"stackFrames": [{"id": 7}]})
    assert (([], [rest["seq"], stack["seq"]]), []) == (contents(output), output.requests)


def test_change_ends_the_stop():
    """After it no more requests are sent; announced ones still get responses, because an editor may wait for them."""
    engine = engine_with(STACK, LATER, RequestTemplate("scopes"))
    stack, rest = engine.begin_stop(1, 6, 0).requests
    (scopes,) = answer(engine, stack, {"stackFrames": [{"id": 7}]}).requests
    engine.change_requested({"seq": 7, "type": "request", "command": "next"})
    output = answer(engine, scopes, {"scopes": [{"variablesReference": 21}]})
    assert (([], [stack["seq"]]), []) == (contents(output), output.requests)  # scopes was not announced
    output = answer(engine, rest, {"stackFrames": []})
    assert (([], [rest["seq"]]), []) == (contents(output), output.requests)


def watch(number: int) -> Message:
    return {"seq": number, "type": "request", "command": "evaluate", "arguments": {"context": "watch"}}


def test_watch_expressions():
    """When all of them have a response, the stop is prefetched again, with the number of the last one."""
    engine = engine_with(STACK)
    engine.begin_stop(1, 6, 0)
    for number in (7, 8):
        engine.change_requested(watch(number))
    assert PrefetchOutput([], None) == engine.watch_answered(response(watch(8)), 8, 0)
    again = engine.watch_answered(response(watch(7)), 8, 0)
    (stack,) = again.requests
    assert {"after": 8, "requested": [stack], "responses": []} == again.event["body"]
    assert not engine.is_watching


@pytest.mark.parametrize("command", ["next", "evaluate", "setVariable", None])
def test_change_after_a_watch_expression(command):
    """After any other request that may change something, the stop is not prefetched again."""
    engine = engine_with(STACK)
    engine.begin_stop(1, 6, 0)
    engine.change_requested(watch(7))
    engine.change_requested({"seq": 8, "type": "request", "command": command} if command else None)
    engine.change_requested(watch(9))
    for number in (7, 9):
        assert PrefetchOutput([], None) == engine.watch_answered(response(watch(number)), 9, 0)


def test_next_stop_ends_the_stop_before():
    """After a new stop, no requests are sent for the stop before."""
    engine = engine_with(*ALL)
    old = engine.begin_stop(1, 6, 0).requests[0]
    new = engine.begin_stop(1, 6, 0).requests[0]
    output = answer(engine, old, {"stackFrames": [{"id": 7}]})
    assert (([], [old["seq"]]), []) == (contents(output), output.requests)
    (scopes,) = answer(engine, new, {"stackFrames": [{"id": 8}]}).requests
    assert scopes["arguments"] == {"frameId": 8}


@pytest.mark.parametrize(("size", "seconds"), [(0, SLOW + 0.01), (LARGE + 1, 0.0)])
def test_costly_request(size, seconds):
    """A request that is slow or large three times in a row, and not just in total, is no longer prefetched."""
    engine = engine_with(STACK)
    costs = [True] * (COSTLY_LIMIT - 1) + [False] + [True] * COSTLY_LIMIT
    for costly in costs:
        (stack,) = engine.begin_stop(1, 6, 0).requests
        cost = {"size": size, "now": seconds} if costly else {}
        assert ([], [stack["seq"]]) == contents(answer(engine, stack, {"stackFrames": [{"id": 7}]}, **cost))
    assert PrefetchOutput([], None) == engine.begin_stop(1, 6, 0)
    engine.replace_set([STACK.as_json()])
    assert 1 == len(engine.begin_stop(1, 6, 0).requests)


def test_large_responses_have_their_own_event():
    """A large response does not wait for others, so no event exceeds the limit of the client."""
    engine = engine_with(*ALL)
    stack, *_ = engine.begin_stop(1, 6, 0).requests
    output = answer(engine, stack, {"stackFrames": [{"id": 7}]}, size=LARGE + 1)
    assert (["scopes"], [stack["seq"]]) == contents(output)


@pytest.mark.parametrize("templates", [None, 3, [3, {"command": "evaluate", "scope": 0, "rest": {}}]])
def test_invalid_prefetch_set(templates):
    """Templates that are not prefetchable are ignored."""
    engine = engine_with(*ALL)
    engine.replace_set(templates)
    assert PrefetchOutput([], None) == engine.begin_stop(1, 6, 0)

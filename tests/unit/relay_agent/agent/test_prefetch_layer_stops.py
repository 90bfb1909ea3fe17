"""Facts about the requests that are prefetched at a stop, and the events that the client receives."""

from typing import NamedTuple

import pytest

from relay_agent.agent.prefetch_layer import COSTLY_LIMIT, LARGE, SLOW, PrefetchLayer
from relay_core.dap.framing import Message, MessageDecoder, encode
from relay_core.dap.prefetch import PREFETCH_EVENT, PREFETCH_SET, RequestTemplate
from relay_core.layers.piece import MAX_PARSED
from tests.support.machine.streams import split
from tests.support.sessions.layers import Alone

STACK = RequestTemplate("stackTrace", 0, {"startFrame": 0, "levels": 1})
LATER = RequestTemplate("stackTrace", 0, {"startFrame": 1})
ALL = [STACK, RequestTemplate("scopes"), RequestTemplate("variables"), LATER, RequestTemplate("threads")]


class Sent(NamedTuple):
    """What the layer has sent because of a message of debugpy."""

    requests: list[Message]
    event: Message | None


NOTHING = Sent([], None)


def ask(layer: Alone[PrefetchLayer], number: int, command: str, arguments: object = None) -> None:
    """Let the client send a request."""
    request = {"seq": number, "type": "request", "command": command, "arguments": arguments}
    layer.receive_peer(encode(request), 0)


def replace_set(layer: Alone[PrefetchLayer], templates: object) -> None:
    ask(layer, 0, PREFETCH_SET, {"requests": templates})


def layer_with(*templates: RequestTemplate) -> Alone[PrefetchLayer]:
    """Return a layer with a prefetch set, whose editor has sent request 6."""
    layer = Alone(PrefetchLayer())
    replace_set(layer, [template.as_json() for template in templates])
    ask(layer, 6, "next")
    return layer


def receive(layer: Alone[PrefetchLayer], message: Message, now: float = 0.0) -> Sent:
    """Let debugpy send a message."""
    onward, requests = (
        MessageDecoder().receive_data(data) for data in split(layer.receive_local(encode(message), now))
    )
    event = next((message for message in onward if message.get("event") == PREFETCH_EVENT), None)
    return Sent(requests, event)


def stop(layer: Alone[PrefetchLayer]) -> Sent:
    return receive(layer, {"seq": 9, "type": "event", "event": "stopped", "body": {"threadId": 1, "reason": "step"}})


def response(request: Message, body: object = None, *, success: bool = True, text: str = "") -> Message:
    return {"type": "response", "request_seq": request["seq"], "success": success, "body": body, "message": text}


def answer(
    layer: Alone[PrefetchLayer], request: Message, body: object = None, *, size: int = 0, now: float = 0.0
) -> Sent:
    """Let debugpy answer a prefetch request."""
    return receive(layer, response(request, body, text="x" * size), now)


def contents(sent: Sent) -> tuple[list[str], list[int]]:
    """Return the commands of the requests in an event, and the request numbers of its responses."""
    assert sent.event is not None
    body = sent.event["body"]
    assert body["after"] == 6
    return [request["command"] for request in body["requested"]], [
        answer["request_seq"] for answer in body["responses"]
    ]


def test_each_request_is_sent_when_its_ids_are_known():
    """Frame and scope ids come from earlier responses; events have every request and every response."""
    layer = layer_with(*ALL)
    sent = stop(layer)
    stack, rest, threads = sent.requests
    assert (["stackTrace", "stackTrace", "threads"], []) == contents(sent)
    assert (stack["command"], stack["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 0, "levels": 1})
    assert (rest["command"], rest["arguments"]) == ("stackTrace", {"threadId": 1, "startFrame": 1})
    assert (threads["command"], threads["arguments"]) == ("threads", {})
    sent = answer(layer, stack, {"stackFrames": [{"id": 7}]})
    (scopes,) = sent.requests
    assert (sent.event, scopes["arguments"]) == (None, {"frameId": 7})
    assert NOTHING == answer(layer, threads, {"threads": []})
    assert NOTHING == answer(layer, rest, {"stackFrames": []})
    sent = answer(layer, scopes, {"scopes": [{"variablesReference": 21}]})
    (variables,) = sent.requests
    assert variables["arguments"] == {"variablesReference": 21}
    answers = [stack["seq"], threads["seq"], rest["seq"], scopes["seq"]]
    assert (["scopes", "variables"], answers) == contents(sent)  # variables is not waited for
    sent = answer(layer, variables, {"variables": [{"name": "é"}]})
    assert (([], [variables["seq"]]), []) == (contents(sent), sent.requests)
    assert sent.event["body"]["responses"][0]["body"] == {"variables": [{"name": "é"}]}
    assert layer.layer.longest_local == MAX_PARSED


@pytest.mark.parametrize("body", [{"stackFrames": []}, None])
def test_a_stop_without_frames(body):
    """At a stop without frames, requests about frames are not sent."""
    layer = layer_with(*ALL[:3])
    (stack,) = stop(layer).requests
    sent = answer(layer, stack, body)
    assert (([], [stack["seq"]]), []) == (contents(sent), sent.requests)


def test_failure_ends_the_stop():
    """If a request fails, the process has resumed: no more requests are sent."""
    layer = layer_with(STACK, LATER, RequestTemplate("scopes"))
    stack, rest = stop(layer).requests
    receive(layer, response(rest, success=False))
    sent = answer(layer, stack, {"stackFrames": [{"id": 7}]})
    assert (([], [rest["seq"], stack["seq"]]), []) == (contents(sent), sent.requests)


def test_change_ends_the_stop():
    """After it no more requests are sent; announced ones still get responses, because an editor may wait for them."""
    layer = layer_with(STACK, LATER, RequestTemplate("scopes"))
    stack, rest = stop(layer).requests
    (scopes,) = answer(layer, stack, {"stackFrames": [{"id": 7}]}).requests
    ask(layer, 7, "next")
    sent = answer(layer, scopes, {"scopes": [{"variablesReference": 21}]})
    assert (([], [stack["seq"]]), []) == (contents(sent), sent.requests)  # scopes was not announced
    sent = answer(layer, rest, {"stackFrames": []})
    assert (([], [rest["seq"]]), []) == (contents(sent), sent.requests)


def watch(layer: Alone[PrefetchLayer], number: int) -> None:
    ask(layer, number, "evaluate", {"context": "watch"})


def test_watch_expressions():
    """When all of them have a response, the stop is prefetched again, with the number of the last one."""
    layer = layer_with(STACK)
    stop(layer)
    for number in (7, 8):
        watch(layer, number)
    assert answer(layer, {"seq": 8}) == NOTHING
    again = answer(layer, {"seq": 7})
    (stack,) = again.requests
    assert {"after": 8, "requested": [stack], "responses": []} == again.event["body"]
    answer(layer, stack)
    assert answer(layer, {"seq": 8}) == NOTHING


@pytest.mark.parametrize("command", ["next", "evaluate", "setVariable", None])
def test_change_after_a_watch_expression(command):
    """After any other request that may change something, the stop is not prefetched again."""
    layer = layer_with(STACK)
    stop(layer)
    watch(layer, 7)
    if command:
        ask(layer, 8, command)
    else:
        layer.receive_peer(encode(response({"seq": 8})), 0)  # what is not a request
    watch(layer, 9)
    for number in (7, 9):
        assert answer(layer, {"seq": number}) == NOTHING


def test_next_stop_ends_the_stop_before():
    """After a new stop, no requests are sent for the stop before."""
    layer = layer_with(*ALL)
    old = stop(layer).requests[0]
    new = stop(layer).requests[0]
    sent = answer(layer, old, {"stackFrames": [{"id": 7}]})
    assert (([], [old["seq"]]), []) == (contents(sent), sent.requests)
    (scopes,) = answer(layer, new, {"stackFrames": [{"id": 8}]}).requests
    assert scopes["arguments"] == {"frameId": 8}


@pytest.mark.parametrize(("size", "seconds"), [(0, SLOW + 0.01), (LARGE + 1, 0.0)])
def test_costly_request(size, seconds):
    """Three slow or large responses in a row end the prefetching of a request; any other response resets the count."""
    layer = layer_with(STACK)
    costs = [True] * (COSTLY_LIMIT - 1) + [False] + [True] * COSTLY_LIMIT
    for costly in costs:
        (stack,) = stop(layer).requests
        cost = {"size": size, "now": seconds} if costly else {}
        assert ([], [stack["seq"]]) == contents(answer(layer, stack, {"stackFrames": [{"id": 7}]}, **cost))
    assert NOTHING == stop(layer)
    replace_set(layer, [STACK.as_json()])
    assert 1 == len(stop(layer).requests)


def test_large_responses_have_their_own_event():
    """A large response does not wait for others, so no event exceeds the limit of the client."""
    layer = layer_with(*ALL)
    stack, *_ = stop(layer).requests
    sent = answer(layer, stack, {"stackFrames": [{"id": 7}]}, size=LARGE + 1)
    assert (["scopes"], [stack["seq"]]) == contents(sent)


@pytest.mark.parametrize("templates", [None, 3, [3, {"command": "evaluate", "scope": 0, "rest": {}}]])
def test_invalid_prefetch_set(templates):
    """Templates that are not prefetchable are ignored."""
    layer = layer_with(*ALL)
    replace_set(layer, templates)
    assert NOTHING == stop(layer)

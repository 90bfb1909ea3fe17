"""Facts about what an agent prefetches from a debugger."""

import json

import pytest

from relay_agent.agent.prefetch_layer import PrefetchLayer
from relay_core.dap.framing import Message, MessageDecoder, encode
from relay_core.dap.prefetch import PREFETCH_EVENT, PREFETCH_SET, RequestTemplate
from relay_core.layers.layer import EndLocal, EndPeer, ResetLocal, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED
from tests.support.machine.streams import split
from tests.support.sessions.layers import Alone

STACK = RequestTemplate("stackTrace", 0, {"startFrame": 0, "levels": 1})
STOPPED = encode({"seq": 9, "type": "event", "event": "stopped", "body": {"threadId": 1, "reason": "step"}})
SET = {"requests": [template.as_json() for template in (STACK, RequestTemplate("scopes"))]}
THE_SET = encode({"seq": 0, "type": "request", "command": PREFETCH_SET, "arguments": SET})


def parse(data: bytes) -> list[Message]:
    return MessageDecoder().receive_data(data)


def response(request: Message, body: object) -> bytes:
    fields = {"seq": 10, "type": "response", "request_seq": request["seq"], "command": request["command"]}
    return encode({**fields, "success": True, "body": body})


def contents(onward: bytes) -> tuple[list[str], list[str], int]:
    """Return the commands of requests and responses in a prefetch event, and after which request it is."""
    (event,) = parse(onward)
    assert event["event"] == PREFETCH_EVENT
    body = event["body"]
    return (
        [request["command"] for request in body["requested"]],
        [r["command"] for r in body["responses"]],
        body["after"],
    )


@pytest.fixture
def layer() -> Alone[PrefetchLayer]:
    """A layer whose client has sent a prefetch set."""
    layer = Alone(PrefetchLayer())
    assert layer.receive_peer(THE_SET, 0) == []
    return layer


def feed(layer: Alone[PrefetchLayer], data: bytes) -> tuple[bytes, list[Message]]:
    """Let debugpy send bytes; return the bytes for the client, and the requests for debugpy."""
    onward, requests = split(layer.receive_local(data, 0))
    return onward, parse(requests)


def step(layer: Alone[PrefetchLayer]) -> None:
    """The editor resumes, with request 6."""
    request = encode({"seq": 6, "type": "request", "command": "next", "arguments": {"threadId": 1}})
    assert layer.receive_peer(request, 0) == [ToLocal(request)]


def test_requests_are_sent_at_a_stop(layer):
    """Events after the stop have the requests, the responses, and the number of the editor's last request."""
    step(layer)
    onward, (stack,) = feed(layer, STOPPED)
    assert onward.startswith(STOPPED)
    assert (["stackTrace"], [], 6) == contents(onward[len(STOPPED) :])
    onward, (scopes,) = feed(layer, response(stack, {"stackFrames": [{"id": 7}]}))
    assert (onward, scopes["arguments"]) == (b"", {"frameId": 7})
    onward, requests = feed(layer, response(scopes, {"scopes": []}))
    assert ((["scopes"], ["stackTrace", "scopes"], 6), []) == (contents(onward), requests)


def test_without_a_prefetch_set():
    """Without a prefetch set every byte is passed on, and no requests are sent."""
    layer = Alone(PrefetchLayer())
    assert layer.receive_local(STOPPED + STOPPED[:20], 0) == [ToPeer(STOPPED)]
    assert layer.receive_local_eof(0) == [ToPeer(STOPPED[:20]), EndPeer()]
    request = encode({"seq": 1, "type": "request", "command": "next"})
    assert layer.receive_peer(request + request[:3], 0) == [ToLocal(request)]
    assert layer.receive_peer_eof(0) == [ToLocal(request[:3]), EndLocal()]


def test_ends():
    """EOF between messages is passed on alone; an incomplete message is passed on before a loss."""
    layer = Alone(PrefetchLayer())
    assert ([EndPeer()], [EndLocal()]) == (layer.receive_local_eof(0), layer.receive_peer_eof(0))
    assert [ResetLocal()] == layer.receive_peer_lost(0)
    layer.receive_peer(b"Content", 0)
    assert [ToLocal(b"Content"), ResetLocal()] == layer.receive_peer_lost(0)


def test_responses_to_the_editor_are_passed_on(layer):
    """Responses to requests of the editor are passed on in order, also during prefetch."""
    feed(layer, STOPPED)
    own = response({"seq": 5, "command": "threads"}, {"threads": []})
    assert feed(layer, own) == (own, [])


def test_editor_that_resumes_ends_the_stop(layer):
    """After a request that may change something, no more requests are sent."""
    _, (stack,) = feed(layer, STOPPED)
    step(layer)
    onward, requests = feed(layer, response(stack, {"stackFrames": [{"id": 7}]}))
    assert (([], ["stackTrace"], 0), []) == (contents(onward), requests)


def test_watch_expression_ends_the_stop(layer):
    """A watch expression may have side effects, so nothing more is prefetched until it has its response."""
    _, (stack,) = feed(layer, STOPPED)
    arguments = {"expression": "x", "context": "watch"}
    layer.receive_peer(encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": arguments}), 0)
    assert [] == feed(layer, response(stack, {"stackFrames": [{"id": 7}]}))[1]


@pytest.mark.parametrize("when", ["before the stop", "after it"])
def test_nothing_is_inserted_into_a_long_request(layer, when):
    """While a long message of the editor is incomplete, no requests are sent to debugpy."""
    long = encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": {"expression": "x" * 300_000}})
    if when == "after it":
        _, (stack,) = feed(layer, STOPPED)
    assert layer.receive_peer(long[:1000], 0) == [ToLocal(long[:1000])]
    if when == "after it":
        onward, requests = feed(layer, response(stack, {"stackFrames": [{"id": 7}]}))
        assert (([], ["stackTrace"], 0), []) == (contents(onward), requests)
    assert (STOPPED, []) == feed(layer, STOPPED)


def watch(number: int) -> bytes:
    arguments = {"expression": "x", "context": "watch"}
    return encode({"seq": number, "type": "request", "command": "evaluate", "arguments": arguments})


def test_watch_expressions(layer):
    """After the last of them, the stop is prefetched again; the event is sent before the response."""
    step(layer)
    feed(layer, STOPPED)
    for number in (7, 8):
        assert [ToLocal(watch(number))] == layer.receive_peer(watch(number), 0)
    answers = [response({"seq": number, "command": "evaluate"}, {"result": "1"}) for number in (7, 8)]
    assert (answers[0], []) == feed(layer, answers[0])
    onward, (stack,) = feed(layer, answers[1])
    assert onward.endswith(answers[1])
    assert (["stackTrace"], [], 8) == contents(onward[: -len(answers[1])])
    assert "stackTrace" == stack["command"]


@pytest.mark.parametrize("text", ["stopped", PREFETCH_SET, PREFETCH_EVENT])
def test_what_only_looks_like_it(layer, text):
    """Output and expressions that contain these names are passed on unchanged."""
    output = encode({"seq": 9, "type": "event", "event": "output", "body": {"output": json.dumps(text)}})
    assert feed(layer, output) == (output, [])
    evaluation = encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": {"expression": text}})
    assert layer.receive_peer(evaluation, 0) == [ToLocal(evaluation)]


def test_long_response(layer):
    """A response to the agent is never passed on to the editor, however long it is."""
    _, (stack,) = feed(layer, STOPPED)
    onward, _ = feed(layer, response(stack, {"stackFrames": [{"id": 7}], "text": "x" * MAX_PARSED}))
    assert (["scopes"], ["stackTrace"], 0) == contents(onward)


@pytest.mark.parametrize("early", [b"", b"Content"])
def test_connection_that_is_not_a_debuggers(early):
    """A layer in front of another protocol is finished, and holds no bytes of the other direction back."""
    layer = Alone(PrefetchLayer())
    layer.receive_local(early, 0)
    held = [ToPeer(early)] if early else []
    assert [*held, ToLocal(b"GET / HTTP/1.1")] == layer.receive_peer(b"GET / HTTP/1.1", 0)
    assert layer.is_finished


def test_editor_that_loses_its_framing(layer):
    """A connection that has used DAP keeps its layer: responses to the agent may be in transit."""
    layer.receive_peer(b"garbage", 0)
    assert not layer.is_finished

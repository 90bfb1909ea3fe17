"""Facts about what an agent prefetches from a debugger."""

import json

import pytest

from relay_agent.prefetch.layer import PrefetchLayer
from relay_core.dap.framing import Message, MessageDecoder, encode
from relay_core.dap.prefetch import IN_PROCESS, PREFETCH_EVENT, PREFETCH_SET, RequestTemplate
from relay_core.dap.splitter import MAX_PARSED
from relay_core.layers.layer import EndLocal, EndPeer, ResetLocal, ToLocal, ToPeer
from tests.support.streams import split

STACK = RequestTemplate("stackTrace", 0, {"startFrame": 0, "levels": 1})
STOPPED = encode({"seq": 9, "type": "event", "event": "stopped", "body": {"threadId": 1, "reason": "step"}})
QUESTIONS = {"questions": [question.as_json() for question in (STACK, RequestTemplate("scopes"))]}
THE_PLAN = encode({"seq": 0, "type": "request", "command": PREFETCH_SET, "arguments": QUESTIONS})


def parse(data: bytes) -> list[Message]:
    return MessageDecoder().receive_data(data)


def response(request: Message, body: object) -> bytes:
    fields = {"seq": 10, "type": "response", "request_seq": request["seq"], "command": request["command"]}
    return encode({**fields, "success": True, "body": body})


def news(onward: bytes) -> tuple[list[str], list[str], int]:
    """Return which commands the client is told of, as asked and as answered, and after which request."""
    (told,) = parse(onward)
    assert told["event"] == PREFETCH_EVENT
    body = told["body"]
    return [request["command"] for request in body["asked"]], [r["command"] for r in body["answered"]], body["after"]


@pytest.fixture
def asker() -> PrefetchLayer:
    """An agent whose client has a plan."""
    asker = PrefetchLayer()
    assert asker.receive_peer(THE_PLAN, 0) == []
    return asker


@pytest.fixture
def job() -> PrefetchLayer:
    """The same beside a process that asks by itself."""
    asker = PrefetchLayer()
    willing = encode({"seq": 3, "type": "event", "event": IN_PROCESS, "body": {}})
    assert asker.receive_local(willing, 0) == []
    assert asker.receive_peer(THE_PLAN, 0) == []
    return asker


def tell(asker: PrefetchLayer, data: bytes) -> tuple[bytes, list[Message]]:
    """Let debugpy say something; return what goes on to the client, and what debugpy is asked."""
    onward, requests = split(asker.receive_local(data, 0))
    return onward, parse(requests)


def step(asker: PrefetchLayer) -> None:
    """The editor resumes, with request 6."""
    request = encode({"seq": 6, "type": "request", "command": "next", "arguments": {"threadId": 1}})
    assert asker.receive_peer(request, 0) == [ToLocal(request)]


def test_questions_are_asked_at_a_stop(asker):
    """The client is told of them behind the stop, and of the answers, with the number of the editor's last request."""
    step(asker)
    onward, (stack,) = tell(asker, STOPPED)
    assert onward.startswith(STOPPED)
    assert (["stackTrace"], [], 6) == news(onward[len(STOPPED) :])
    onward, (scopes,) = tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))
    assert (onward, scopes["arguments"]) == (b"", {"frameId": 7})
    onward, requests = tell(asker, response(scopes, {"scopes": []}))
    assert ((["scopes"], ["stackTrace", "scopes"], 6), []) == (news(onward), requests)


def test_job_that_asks_by_itself(job):
    """The news in its stop are told behind it, all others as they are; the agent asks nothing."""
    asked = {"seq": 1_000_000_001, "type": "request", "command": "threads", "arguments": {}}
    told = {"after": 6, "asked": [asked], "answered": []}
    stop = {"seq": 9, "type": "event", "event": "stopped", "body": {"threadId": 1, "reason": "step"}}
    onward, requests = tell(job, encode({**stop, "body": {**stop["body"], PREFETCH_EVENT: told}}))
    assert onward.startswith(STOPPED)
    assert ((["threads"], [], 6), []) == (news(onward[len(STOPPED) :]), requests)
    later = encode(
        {"seq": 10, "type": "event", "event": PREFETCH_EVENT, "body": {"after": 6, "asked": [], "answered": []}}
    )
    assert tell(job, later) == (later, [])


def test_what_a_job_is_told(job):
    """A request that lets it go on has a new plan among its arguments, and always its number."""
    resuming = {"seq": 6, "type": "request", "command": "next", "arguments": {"threadId": 1}}
    for plan in ({**QUESTIONS, "after": 6}, {"after": 6}):
        (told,) = parse(split(job.receive_peer(encode(resuming), 0))[1])
        assert told == {**resuming, "arguments": {"threadId": 1, PREFETCH_SET: plan}}
    other = encode({"seq": 7, "type": "request", "command": "evaluate", "arguments": {"expression": "x"}})
    assert job.receive_peer(other, 0) == [ToLocal(other)]
    assert tell(job, STOPPED) == (STOPPED, [])  # it has nothing to ask


def test_nobody_has_a_plan():
    """Without a plan every byte goes on, and nothing is asked."""
    asker = PrefetchLayer()
    assert asker.receive_local(STOPPED + STOPPED[:20], 0) == [ToPeer(STOPPED)]
    assert asker.receive_local_eof(0) == [ToPeer(STOPPED[:20]), EndPeer()]
    request = encode({"seq": 1, "type": "request", "command": "next"})
    assert asker.receive_peer(request + request[:3], 0) == [ToLocal(request)]
    assert asker.receive_peer_eof(0) == [ToLocal(request[:3]), EndLocal()]


def test_ends():
    """An end without the beginning of a message is an end only, and what was begun comes before a loss."""
    asker = PrefetchLayer()
    assert ([EndPeer()], [EndLocal()]) == (asker.receive_local_eof(0), asker.receive_peer_eof(0))
    assert [ResetLocal()] == asker.receive_peer_lost(0)
    asker.receive_peer(b"Content", 0)
    assert [ToLocal(b"Content"), ResetLocal()] == asker.receive_peer_lost(0)


def test_answers_to_the_editor_go_on(asker):
    """What the editor has asked itself is answered in its place, in the middle of all this."""
    tell(asker, STOPPED)
    own = response({"seq": 5, "command": "threads"}, {"threads": []})
    assert tell(asker, own) == (own, [])


def test_editor_that_goes_on_ends_the_round(asker):
    """After a request that may change something nothing more is asked."""
    _, (stack,) = tell(asker, STOPPED)
    step(asker)
    onward, requests = tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))
    assert (([], ["stackTrace"], 0), []) == (news(onward), requests)


def test_watch_expression_does_not_end_the_round(asker):
    """What an editor evaluates by itself stops nothing."""
    _, (stack,) = tell(asker, STOPPED)
    arguments = {"expression": "x", "context": "watch"}
    asker.receive_peer(encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": arguments}), 0)
    assert 1 == len(tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))[1])


@pytest.mark.parametrize("when", ["before the stop", "after it"])
def test_nothing_is_put_into_a_long_request(asker, when):
    """While the editor is in the middle of a long message, debugpy is asked nothing."""
    long = encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": {"expression": "x" * 300_000}})
    if when == "after it":
        _, (stack,) = tell(asker, STOPPED)
    assert asker.receive_peer(long[:1000], 0) == [ToLocal(long[:1000])]
    if when == "after it":
        onward, requests = tell(asker, response(stack, {"stackFrames": [{"id": 7}]}))
        assert (([], ["stackTrace"], 0), []) == (news(onward), requests)
    assert (STOPPED, []) == tell(asker, STOPPED)


@pytest.mark.parametrize("text", ["stopped", PREFETCH_SET, PREFETCH_EVENT, IN_PROCESS])
def test_what_only_looks_like_it(asker, text):
    """Output that contains these words is output, and code that does so is code."""
    output = encode({"seq": 9, "type": "event", "event": "output", "body": {"output": json.dumps(text)}})
    assert tell(asker, output) == (output, [])
    evaluation = encode({"seq": 6, "type": "request", "command": "evaluate", "arguments": {"expression": text}})
    assert asker.receive_peer(evaluation, 0) == [ToLocal(evaluation)]


def test_long_answer(asker):
    """However long it is, an answer to a question of the agent is no answer to the editor."""
    _, (stack,) = tell(asker, STOPPED)
    onward, _ = tell(asker, response(stack, {"stackFrames": [{"id": 7}], "text": "x" * MAX_PARSED}))
    assert (["scopes"], ["stackTrace"], 0) == news(onward)


@pytest.mark.parametrize("early", [b"", b"Content"])
def test_connection_that_is_not_a_debuggers(early):
    """A layer in front of another protocol is finished, unless bytes of the other direction wait for their rest."""
    asker = PrefetchLayer()
    asker.receive_local(early, 0)
    assert [ToLocal(b"GET / HTTP/1.1")] == asker.receive_peer(b"GET / HTTP/1.1", 0)
    assert (not early) == asker.is_finished


def test_editor_that_loses_its_framing(asker):
    """One that has spoken DAP keeps its layer: answers to the agent may be on their way."""
    asker.receive_peer(b"garbage", 0)
    assert not asker.is_finished

"""Facts about reading where a process is stopped from the messages of its debug session."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.dap.framing import encode
from relay_core.dap.prefetch import PREFETCH_EVENT
from relay_core.layers.layer import ToLocal, ToPeer
from relay_core.layers.stop_observer import MAX_KEPT, ObservedStop, Place, StopObserver
from tests.support.sessions.layers import Alone

FRAME = {"id": 9, "name": "step", "line": 41, "source": {"path": "/home/alice/train.py"}}
PLACE = Place("/home/alice/train.py", 41, "step")
STOP, PLACED = ("breakpoint", None), ("breakpoint", PLACE)


def event(name: str, **body: Any) -> bytes:
    return encode({"seq": 0, "type": "event", "event": name, "body": body})


def request(seq: int, command: str, **arguments: Any) -> bytes:
    return encode({"seq": seq, "type": "request", "command": command, "arguments": arguments})


def response(seq: int, command: str, **body: Any) -> bytes:
    return encode({"seq": 0, "type": "response", "request_seq": seq, "command": command, "success": True, "body": body})


STOPPED = event("stopped", reason="breakpoint", threadId=1)


class Seen(list[tuple[str, Place | None] | None]):
    """The reason and the place of each stop at each change, without repetitions."""

    def changed(self, stop: ObservedStop | None) -> None:
        found = None if stop is None else (stop.reason, stop.place)
        if not self or found != self[-1]:
            self.append(found)


class Session:
    """An observed session."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.observer = Alone(StopObserver(self.seen.changed))

    def editor(self, *messages: bytes) -> None:
        for message in messages:
            assert [ToPeer(message)] == self.observer.receive_local(message, 0.0)

    def debugger(self, *messages: bytes) -> None:
        for message in messages:
            assert [ToLocal(message)] == self.observer.receive_peer(message, 0.0)


def test_a_stop_and_its_place() -> None:
    """The stop is known at once, its place with the stack that the editor requests, and a step ends it."""
    session = Session()
    session.debugger(STOPPED)
    session.editor(request(5, "threads"), request(6, "stackTrace", threadId=1, startFrame=0, levels=1))
    session.debugger(response(5, "threads", threads=[]), response(6, "stackTrace", stackFrames=[FRAME]))
    session.editor(request(7, "next", threadId=1))
    assert [STOP, PLACED, None] == session.seen


@pytest.mark.parametrize(
    ("filters", "uncaught"), [(["uncaught"], "ValueError: no"), (["uncaught", "raised"], ""), (None, "")]
)
def test_a_stop_at_an_exception(filters: list[str] | None, uncaught: str) -> None:
    """It is at an uncaught exception only if the editor has asked for no other exceptions."""
    session, found = Session(), []
    session.observer.layer._on_change = found.append
    if filters is not None:
        session.editor(request(4, "setExceptionBreakpoints", filters=filters))
    session.debugger(event("stopped", reason="exception", threadId=1, text="ValueError", description="no"))
    assert [uncaught] == [stop.uncaught for stop in found]


def test_only_the_top_of_the_stopped_thread_counts() -> None:
    """Other threads, and further frames of this one, do not."""
    session = Session()
    session.debugger(STOPPED)
    session.editor(request(6, "stackTrace", threadId=2), request(7, "stackTrace", threadId=1, startFrame=1))
    session.debugger(response(6, "stackTrace", stackFrames=[FRAME]), response(7, "stackTrace", stackFrames=[FRAME]))
    assert [STOP] == session.seen


def test_a_stack_that_arrives_too_late() -> None:
    """The response to a request of an earlier stop is not the place of the next one."""
    session = Session()
    session.debugger(STOPPED)
    session.editor(request(6, "stackTrace", threadId=1), request(7, "next", threadId=1))
    session.debugger(event("stopped", reason="step", threadId=1), response(6, "stackTrace", stackFrames=[FRAME]))
    assert [STOP, None, ("step", None)] == session.seen


def test_the_debugger_ends_a_stop_too() -> None:
    """The process continues, exits or its session ends."""
    for name in ("continued", "exited", "terminated"):
        session = Session()
        session.debugger(STOPPED, event(name), event(name))
        assert [STOP, None] == session.seen


def test_odd_messages_are_no_stops() -> None:
    """A stack without a frame, and messages that only mention the words, change nothing."""
    session = Session()
    session.debugger(event("output", output='"stopped"'), event("stopped", text="no reason"))
    session.debugger(STOPPED)
    session.editor(request(6, "stackTrace", threadId=1))
    session.debugger(response(6, "stackTrace", stackFrames=[]), response(6, "stackTrace", stackFrames=[FRAME]))
    assert [STOP] == session.seen


def test_a_connection_that_is_not_dap() -> None:
    """It is left alone from its first bytes on."""
    session = Session()
    session.editor(b"GET / HTTP/1.1\r\n\r\n")
    assert session.observer.is_finished


@given(st.lists(st.integers(1, 30)))
def test_chunks_change_nothing(sizes: list[int]) -> None:
    """However the bytes are cut, the same is seen."""
    session = Session()
    stack = session.observer
    for send, data in (
        (stack.receive_peer, STOPPED),
        (stack.receive_local, request(6, "stackTrace", threadId=1)),
        (stack.receive_peer, response(6, "stackTrace", stackFrames=[FRAME]) + event("continued", threadId=1)),
    ):
        rest = data
        for size in sizes:
            if rest[:size]:
                send(rest[:size], 0)
            rest = rest[size:]
        if rest:
            send(rest, 0)
    assert [STOP, PLACED, None] == session.seen


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["reason", "threadId", "stackFrames", "source", "path", "line"]), inner)
        ),
        max_leaves=8,
    )
)
def test_any_body_is_survived(body: object) -> None:
    """A debugger may send any JSON."""
    session = Session()
    session.debugger(STOPPED)
    session.editor(request(6, "stackTrace", threadId=1))
    for message in (
        {"seq": 1, "type": "response", "request_seq": 6, "body": body},
        {"seq": 1, "type": "event", "event": "stopped", "body": body},
    ):
        data = json.dumps(message).encode()
        session.debugger(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))


def test_the_debugger_may_be_local() -> None:
    """In an agent the debugger is the local program, and the editor is the peer."""
    seen = Seen()
    observer = Alone(StopObserver(seen.changed, is_editor_local=False))
    observer.receive_local(STOPPED, 0.0)
    observer.receive_peer(request(6, "stackTrace", threadId=1, startFrame=0, levels=1), 0.0)
    observer.receive_local(response(6, "stackTrace", stackFrames=[FRAME]), 0.0)
    observer.receive_peer(request(7, "continue", threadId=1), 0.0)
    assert [STOP, PLACED, None] == seen


def test_the_place_may_be_prefetched() -> None:
    """An agent that prefetches sends requests and responses in an event."""
    asked = {"seq": 8, "type": "request", "command": "stackTrace", "arguments": {"threadId": 1}}
    answered = {"type": "response", "request_seq": 8, "command": "stackTrace", "body": {"stackFrames": [FRAME]}}
    prefetched = {"after": 0, "requested": [asked], "responses": [answered]}
    session = Session()
    session.debugger(STOPPED, event(PREFETCH_EVENT, **prefetched))
    assert PLACED == session.seen[-1]


def test_the_place_is_found_when_it_is_needed() -> None:
    """The messages of a stop are kept until then, and read later, too; their number is limited."""
    stops: list[ObservedStop | None] = []
    observer = Alone(StopObserver(stops.append))
    observer.receive_peer(STOPPED, 0.0)
    observer.receive_local(request(6, "stackTrace", threadId=1), 0.0)
    for _ in range(10 * MAX_KEPT):
        observer.receive_peer(event(PREFETCH_EVENT, asked=[], answered=[]), 0.0)
    observer.receive_peer(response(6, "stackTrace", stackFrames=[FRAME]), 0.0)
    assert len(stops[0]._kept) < MAX_KEPT
    observer.receive_local(request(7, "next", threadId=1), 0.0)
    assert PLACE == stops[0].place
    assert stops[-1] is None


def test_a_change_is_reported_once_until_the_place_is_read() -> None:
    """Further messages of a stop are reported only to somebody who has read the place before."""
    stops: list[ObservedStop | None] = []
    observer = Alone(StopObserver(stops.append))
    prefetched = event(PREFETCH_EVENT, asked=[], answered=[])
    for data in (STOPPED, prefetched, prefetched):
        observer.receive_peer(data, 0.0)
    assert 2 == len(stops)
    assert stops[0].place is None
    observer.receive_peer(prefetched, 0.0)
    assert 3 == len(stops)

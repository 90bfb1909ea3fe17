"""Facts about the request to replace code, and its response."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.members import Member
from relay_core.agent_api.push import MAX_SOURCE, Phase, Push, Pushed, State
from relay_core.agent_api.requests import parse_request
from relay_core.errors import UsageError
from relay_core.records import encode, parse
from tests.unit.relay_core.agent_api.strategies import COUNTS, JSON, PORTS, TEXTS

PROGRESS = st.dictionaries(st.text(max_size=8), st.integers(0, 2**40), max_size=3)
REQUESTS = st.builds(
    Push,
    st.text(min_size=1, max_size=8),
    st.sampled_from(Phase),
    st.text("abc/.", min_size=1, max_size=8),
    st.lists(st.text("abc/.", min_size=1, max_size=8), max_size=4).map(tuple),
    st.text(max_size=20),
    st.text(max_size=8),
    st.booleans(),
    st.booleans(),
    PROGRESS,
    ranks=st.sampled_from(["all", "0", "0,3-5"]),
    seconds=st.floats(0.1, 60),
)
LINES = st.lists(TEXTS, max_size=3).map(tuple)
RESULTS = st.builds(
    Pushed,
    st.lists(st.builds(Member, PORTS, COUNTS), max_size=4).map(tuple),
    st.sampled_from(State),
    TEXTS,
    TEXTS,
    st.booleans(),
    st.booleans(),
    TEXTS,
    LINES,
    LINES,
    LINES,
    LINES,
    TEXTS,
    TEXTS,
    st.booleans(),
    PROGRESS,
)


def test_names_on_the_wire():
    """Agents and clients of other versions rely on these names."""
    request = Push(
        *("a1", Phase.HOLD, "model.py", ("/job/model.py",), "", "f", True, True, {"0 0-3": 7}),
        ranks="0,3-5",
        seconds=2.0,
    )
    assert Push() == parse_request("push")
    wire = {
        "id": "a1",
        "phase": "hold",
        "file": "model.py",
        "paths": ["/job/model.py"],
        "ranks": "0,3-5",
        "seconds": 2.0,
        "function": "f",
        "again": True,
        "nested": True,
        "targets": {"0 0-3": 7},
    }
    assert (wire, request) == (encode(request), Push.parse_body(wire))
    done = Pushed((Member(5678, 0),), State.DONE, changed=("f()",), kept=("k",), file="/a/model.py", digest="d")
    held = Pushed((Member(5678, 0),), State.HELD, place="f", counts={"0 0-3": 7}, before={"0 0-3": 6})
    fields = {
        "members": [[5678, 0]],
        "state": "done",
        "changed": ["f()"],
        "kept": ["k"],
        "file": "/a/model.py",
        "digest": "d",
    }
    assert fields == encode(done)
    fields = {"members": [[5678, 0]], "state": "held", "place": "f", "counts": {"0 0-3": 7}, "before": {"0 0-3": 6}}
    assert fields == encode(held)
    late = Pushed(state=State.RUNNING, functions=("f",), running=("main",))
    assert {"state": "running", "functions": ["f"], "running": ["main"]} == encode(late)
    refused = {
        "error": "e",
        "hint": "h",
        "is_silent": True,
        "is_refused": True,
        "place": "f",
        "functions": ["f"],
    }
    assert refused == encode(Pushed((), State.FAILED, "e", "h", True, True, "f", ("f",)))


@given(REQUESTS)
def test_request_survives(request: Push):
    """A request that is sent is the one that arrives."""
    assert request == Push.parse_body(json.loads(json.dumps(encode(request))))


@given(RESULTS)
def test_results_survive(sent: Pushed):
    """A result that is sent is the one that arrives."""
    assert sent == parse(Pushed, json.loads(json.dumps(encode(sent))))


def test_the_agent_names_the_user():
    """The user of a push is the one that the agent knows, whatever the body contains."""
    assert "bob" == Push.parse_body({"id": "1", "phase": "hold", "user": "mallory"}, "bob").user


@given(JSON)
def test_anything_is_read(value: object):
    """Any JSON is read as a response; as a request, or refused with a sentence."""
    parse(Pushed, value)
    parse(Pushed, {"members": value, "state": value, "changed": value})
    with contextlib.suppress(UsageError):
        Push.parse_body(
            {
                "id": "1",
                "phase": "hold",
                "file": value,
                "paths": value,
                "source": value,
                "ranks": value,
                "seconds": value,
            }
        )


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"phase": "run"}, "unknown push phase"),
        ({"phase": "hold"}, "the push has no id or no file"),
        ({"phase": "prepare", "id": "1"}, "the push has no id or no file"),
        ({"phase": "prepare", "id": "1", "file": "a.py", "source": "x" * (MAX_SOURCE + 1)}, "larger than 512 KiB"),
        ({"phase": "hold", "id": "1", "ranks": "x"}, "invalid list of ranks"),
    ],
)
def test_refused_requests(body: dict[str, object], sentence: str):
    """A request without its fields, or with a source that is too long, is refused."""
    with pytest.raises(UsageError, match=sentence):
        Push.parse_body(body)


def test_summary():
    """A log line has the digest, and at most ten names."""
    assert "sha256 abc: f()" == Pushed(changed=("f()",), digest="abc").summary
    assert "sha256 abc: only line numbers changed" == Pushed(digest="abc").summary
    assert Pushed(changed=tuple("abcdefghijkl"), digest="abc").summary.endswith("i, j, 2 more")

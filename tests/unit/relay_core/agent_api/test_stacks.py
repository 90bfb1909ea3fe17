"""Facts about the stacks in the response of an agent."""

import json

from hypothesis import given
from hypothesis import strategies as st

from relay_agent.job import collective_timeouts
from relay_client import stacks as client_stacks
from relay_core import records
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack, is_library, public_name
from relay_core.records import encode, parse
from tests.unit.relay_core.agent_api.strategies import JSON, SOME_TEXT, TEXTS

FRAMES = st.builds(Frame, TEXTS, st.integers(0, 10**6), TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3))
THREADS = st.builds(ThreadStack, TEXTS, st.integers(0, 2**48), st.booleans(), st.lists(FRAMES, max_size=3).map(tuple))
PROCESSES = st.builds(
    ProcessStacks,
    SOME_TEXT,
    st.lists(THREADS, max_size=3).map(tuple),
    TEXTS,
)
KINDS = (Frame, ThreadStack, ProcessStacks)
FIELDS = ("how", "error", "threads", "name", "ident", "main", "frames")
FRAME_FIELDS = ("file", "line", "function", "locals")
LINE = {"file": "/job/train.py", "line": 88, "function": "step"}
WIRE = {
    "how": "helper thread",
    "threads": [
        {
            "name": "MainThread",
            "ident": 1,
            "main": True,
            "frames": [LINE | {"function": "f"}, LINE | {"locals": {"x": "1"}}],
        }
    ],
}
"""The wire format: agents and clients of other versions rely on these names."""


def test_names_on_the_wire() -> None:
    """Variables are included if they were requested, and an error if the stacks are missing."""
    frames = (Frame("/job/train.py", 88, "f"), Frame("/job/train.py", 88, "step", {"x": "1"}))
    process = ProcessStacks("helper thread", (ThreadStack("MainThread", 1, True, frames),))
    silent = ProcessStacks(error="it has ended")
    for stacks, wire in ((process, WIRE), (silent, {"error": "it has ended"})):
        assert wire == encode(stacks)
        assert stacks == parse(ProcessStacks, wire)


@given(PROCESSES)
def test_round_trip(stacks: ProcessStacks) -> None:
    """Stacks survive encoding and parsing."""
    assert stacks == parse(ProcessStacks, json.loads(json.dumps(encode(stacks))))


@given(
    st.sampled_from(KINDS),
    JSON | st.dictionaries(st.sampled_from(FIELDS), JSON) | st.dictionaries(st.sampled_from(FRAME_FIELDS), JSON),
)
def test_any_json_reads_as_something(
    kind: type[Frame] | type[ThreadStack] | type[ProcessStacks], value: object
) -> None:
    """Any JSON of an agent or a job can be parsed."""
    read = parse(kind, value)
    assert read == parse(kind, encode(read))


def test_texts_are_cleaned() -> None:
    """`clean` is applied to every text, including names of variables."""
    assert Frame("F", 1, "G", {"X": "Y"}) == parse(
        Frame, {"file": "f", "line": 1, "function": "g", "locals": {"x": "y"}}, str.upper
    )
    assert "HELPER THREAD" == parse(ProcessStacks, WIRE, str.upper).how
    assert "MAINTHREAD" == parse(ProcessStacks, WIRE, str.upper).threads[0].name


def test_own_code_is_not_the_users() -> None:
    """In a checkout too, code of relay-debug in a job is library code, for other machines by the name that they get."""
    shown = "<relay-debug>/relay_agent/job/collective_timeouts.py"
    assert shown == public_name(collective_timeouts.__file__)
    for file in (collective_timeouts.__file__, shown, records.__file__):
        assert is_library(file)
    for file in (__file__, client_stacks.__file__, "/home/alice/relay_agent/train.py"):
        assert not is_library(file)
        assert file == public_name(file)


def test_typed_code_is_the_users() -> None:
    """Code that was typed belongs to no file, but is not library code; other code without a file is."""
    for file in ("<stdin>", "<console>", "<python-input-3>", "<ipython-input-3-0f1e>"):
        assert not is_library(file)
    for file in ("<string>", "<frozen runpy>", "<eval_with_key>.1", "<attrs generated init>"):
        assert is_library(file)

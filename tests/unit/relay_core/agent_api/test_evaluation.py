"""Facts about the request to evaluate an expression, and its response."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.agent_api.evaluation import (
    MAX_EXPRESSION,
    MAX_PARTS,
    MAX_SHOWN,
    PART_DIGITS,
    Difference,
    Evaluate,
    Leaf,
    Selection,
    Value,
    part_bounds,
)
from relay_core.agent_api.members import Member, grouped
from relay_core.agent_api.requests import parse_request, stream_name
from relay_core.errors import UsageError
from relay_core.records import encode, parse
from tests.unit.relay_core.agent_api.strategies import COUNTS, JSON, PORTS, TEXTS

NUMBERS = st.integers(0, 2**40)
SELECTIONS = st.builds(Selection, NUMBERS, COUNTS) | st.builds(Selection, NUMBERS, NUMBERS, st.tuples(NUMBERS, NUMBERS))
REQUESTS = st.builds(
    Evaluate,
    st.text(min_size=1, max_size=20).filter(lambda text: text.strip()),
    st.none() | SELECTIONS,
    ranks=st.sampled_from(["all", "0", "0,3-5"]),
    seconds=st.floats(0.1, 600),
)
LEAVES = st.builds(Leaf, TEXTS, TEXTS, NUMBERS, st.lists(TEXTS, max_size=MAX_PARTS).map(tuple))
DIFFERENCES = st.builds(Difference, TEXTS, TEXTS, COUNTS, TEXTS, TEXTS, TEXTS, st.text("0123456789abcdef", min_size=1))
DIGESTS = st.text("0123456789abcdef", min_size=PART_DIGITS, max_size=PART_DIGITS)
VALUES = st.builds(
    Value,
    st.lists(st.builds(Member, PORTS, COUNTS), max_size=4).map(tuple),
    TEXTS,
    TEXTS,
    TEXTS,
    st.booleans(),
    TEXTS,
    NUMBERS,
    st.lists(DIGESTS, max_size=MAX_PARTS).map(tuple),
    st.none() | LEAVES,
    st.none() | DIFFERENCES,
    NUMBERS,
)


def test_names_on_the_wire():
    """Agents and clients of other versions rely on these names."""
    request = Evaluate("loss", Selection(3, 4, (16, 32)), ranks="0,3-5", seconds=2.0, ports="5678-5683")
    assert "evaluate" == stream_name(request)
    assert Evaluate() == parse_request("evaluate")
    wire = {"expression": "loss", "ranks": "0,3-5", "seconds": 2.0, "selection": [3, 4, 16, 32], "ports": "5678-5683"}
    assert (wire, request) == (encode(request), Evaluate.parse_body(wire))
    value = Value(
        (Member(5678, 0), Member(6000)),
        digest="d",
        leaves=3,
        parts=("aaaaaa", "b" * 6),
        leaf=Leaf("w", "[2]", 2, ("1",)),
        difference=Difference("w", "[2]", 0, "1", "2", other="e"),
    )
    fields = {
        "members": [[5678, 0], [6000]],
        "digest": "d",
        "leaves": 3,
        "parts": "aaaaaabbbbbb",
        "leaf": {"name": "w", "description": "[2]", "elements": 2, "shown": ["1"]},
        "difference": {"leaf": "w", "description": "[2]", "element": 0, "first": "1", "second": "2", "other": "e"},
    }
    assert (fields, value) == (encode(value), parse(Value, fields))
    silent = {"members": [[5678, 0]], "text": "1", "place": "step train.py:41", "error": "e", "is_silent": True}
    assert silent == encode(Value((Member(5678, 0),), "1", "step train.py:41", "e", True))


@given(REQUESTS)
def test_request_survives(request: Evaluate):
    """A request that is sent is the one that arrives."""
    assert request == Evaluate.parse_body(json.loads(json.dumps(encode(request))))


@given(VALUES)
def test_values_survive(sent: Value):
    """A value that is sent is the one that arrives."""
    assert sent == parse(Value, json.loads(json.dumps(encode(sent))))


@given(JSON)
def test_anything_is_read(value: object):
    """Any JSON is read as a response; as a request, or refused with a sentence."""
    parse(Value, value)
    parse(Value, {"members": value, "leaf": value, "parts": value, "difference": value})
    with contextlib.suppress(UsageError):
        Evaluate.parse_body({"expression": "x", "selection": value, "ranks": value, "seconds": value})


@pytest.mark.parametrize("body", [{}, {"expression": " "}, {"expression": "x" * (MAX_EXPRESSION + 1)}])
def test_expression_is_required(body: dict[str, object]):
    """A request without an expression, or with a very long one, is refused."""
    with pytest.raises(UsageError, match="the expression is empty or longer than"):
        Evaluate.parse_body(body)


@pytest.mark.parametrize(
    ("ranks", "rank", "expected"),
    [("all", 3, True), ("all", None, True), ("0,3-5", 4, True), ("0,3-5", 2, False), ("0", None, False)],
)
def test_selected_ranks(ranks: str, rank: int | None, expected: bool):
    """A list selects its ranks; "all" selects processes without a rank, too."""
    assert expected == Evaluate("x", ranks=ranks).selects(rank, 5678)


@pytest.mark.parametrize(("ports", "expected"), [("", True), ("5600-5678", True), ("5679", False)])
def test_selected_ports(ports: str, expected: bool):
    """A list of ports selects some of the processes that the ranks select."""
    assert expected == Evaluate("x", ranks="0", ports=ports).selects(0, 5678)
    assert not Evaluate("x", ranks="1", ports=ports).selects(0, 5678)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_parts_cover_a_selection(start: int, length: int):
    """The parts of a selection are adjacent, and at most `MAX_PARTS`."""
    parts = part_bounds(start, start + length)
    assert len(parts) <= MAX_PARTS
    assert [first for first, _ in parts] == [start, *(last for _, last in parts[:-1])][: len(parts)]
    assert not length or start + length == parts[-1][1]


@given(st.lists(VALUES, max_size=6))
def test_grouping_keeps_all_members(values: list[Value]):
    """Equal values are one value, with the members of all."""
    found = grouped(values)
    assert sorted(map(repr, (m for v in values for m in v.members))) == sorted(
        map(repr, (m for v in found for m in v.members))
    )
    assert len(found) == len(
        {(v.text, v.place, v.error, v.is_silent, v.digest, v.leaves, v.parts, v.leaf, v.difference) for v in values}
    )


def test_lines_of_a_value() -> None:
    """Each line of a text is cleaned, the line breaks stay, and the length is limited."""
    found = parse(Value, {"text": "a\nb", "in_full": "c\n" * 100_000}, str.upper)
    assert found.text == "A\nB"
    assert found.in_full == ("C\n" * MAX_SHOWN)[:MAX_SHOWN]

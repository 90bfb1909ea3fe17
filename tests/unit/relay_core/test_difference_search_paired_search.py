"""Facts about the search for the first difference by two agents, with the job's own checksums."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_agent.values.contents import fingerprint
from relay_core import difference_search
from relay_core.agent_api.evaluation import Difference, Leaf, SearchStart, Selection, Value, part_bounds
from relay_core.difference_search import PairedSearch, PairedValues, first_parts

FOREVER = time.monotonic() + 1e6
SIZE = 3000


def answer(search: PairedSearch, value: Any, message: bytes) -> bytes:
    """Return the answer of an agent whose process has a value; a string is the error instead."""
    answering = search.answer(message)
    try:
        selection = next(answering)
        while True:
            selection = answering.send(of(value, selection))
    except StopIteration as answered:
        return answered.value


def of(value: Any, selection: Selection) -> Value:
    """Return a selection of a value."""
    if isinstance(value, Large):
        return value.of(selection)
    return Value(error=value) if isinstance(value, str) else fingerprint(value, selection, FOREVER)


class Large:
    """The tensors of a model, all ones, of which an element of one tensor may differ; without their memory."""

    def __init__(self, tensors: int, size: int, wrong: tuple[int, int] | None = None) -> None:
        self.tensors, self.size = tensors, size
        self.wrong = wrong
        """Tensor and element."""

    def of(self, selection: Selection) -> Value:
        first, last = selection.start, self.tensors if selection.stop is None else selection.stop
        has_wrong = self.wrong is not None and first <= self.wrong[0] < last
        if last - first > 1:
            parts = tuple(f"{has_wrong and a <= self.wrong[0] < b:06x}" for a, b in part_bounds(first, last))
            return Value(digest=f"{has_wrong:016x}", leaves=self.tensors, parts=parts)
        element = self.wrong[1] if self.wrong is not None and has_wrong else -1
        start, stop = selection.elements or (0, self.size)
        parts = tuple(f"{a <= element < b:06x}" for a, b in part_bounds(start, stop))
        shown = tuple("0.51234567" if each == element else "1.12345678" for each in range(start, min(stop, start + 24)))
        name = f"model.layers.{first}.self_attn.q_proj.weight" if self.tensors > 1 else ""
        leaf = Leaf(name, f"({self.size},) float32", self.size, shown if stop - start <= 24 else ())
        return Value(digest=f"{start <= element < stop:016x}", leaves=self.tensors, parts=parts, leaf=leaf)


class Pair:
    """Two agents and the client, until the search has ended."""

    def __init__(self, first: Any, second: Any, later: Any = None) -> None:
        values = [of(value, Selection()) for value in (first, second)]
        searches = [PairedSearch(value) for value in values]
        self.client = PairedValues(SearchStart(5678, 0, first_parts(values[1])))
        self.carried = [0, 0]
        """Bytes of the messages of each agent, in both directions."""
        self.messages = [0, 0]
        while (asked := self.client.next()) is not None:
            side, message = asked
            reply = answer(searches[side], (first, second)[side] if later is None else later, message)
            self.carried[side] += len(message) + len(reply)
            self.messages[side] += 1
            self.client.received(reply)

    @property
    def found(self) -> Difference:
        assert self.client.difference is not None, self.client
        return self.client.difference


def array(seed: int, size: int = SIZE) -> Any:
    return np.random.default_rng(seed).integers(0, 1000, size)


@settings(max_examples=60)
@given(st.sets(st.integers(0, SIZE - 1), min_size=1), st.booleans())
def test_first_different_element(elements: set[int], to_the_end: bool):
    """Whatever elements differ, the first one is found, with both values."""
    one, other = array(1), array(1)
    first = min(elements)
    other[slice(first, None) if to_the_end else sorted(elements)] += 1000
    found = Pair(one, other).found
    assert ("(3000,) int64", first, str(one[first]), str(other[first])) == (
        *(found.description, found.element),
        *(found.first, found.second),
    )


@settings(max_examples=60)
@given(st.sets(st.integers(0, SIZE - 1), min_size=1, max_size=40), st.integers(0, 2**32))
def test_equal_checksums_of_different_parts(elements: set[int], salt: int):
    """If one of four short checksums is equal by chance, the search still finds the first different element."""
    one, other = array(2), array(2)
    other[sorted(elements)] += 1000

    def weak(part: str, width: int) -> bytes:
        checksum = original(f"{salt}{part}", width)
        return bytes([checksum[0] & 3]) if width == 1 else checksum

    original = difference_search._checksum
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference_search, "_checksum", weak)
        found = Pair(one, other).found
    assert (min(elements), str(one[min(elements)])) == (found.element, found.first)


@settings(max_examples=40)
@given(st.sets(st.integers(0, SIZE - 1), min_size=1, max_size=40), st.integers(0, 2**32))
def test_never_a_wrong_element(elements: set[int], salt: int):
    """Even if all checksums on the way are weak, the result is an element that differs, or none."""
    one, other = array(3), array(3)
    other[sorted(elements)] += 1000
    original = difference_search._checksum
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            difference_search, "_checksum", lambda part, width: bytes([original(f"{salt}{part}", 1)[0] & 1]) * width
        )
        client = Pair(one, other).client
    if client.difference is None:
        assert client.rest is not None
    else:
        assert client.difference.element in elements


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(0, 999), st.booleans())
def test_leaf_and_element(layer: int, element: int, scalar: bool):
    """Among the leaves of a dict, the first different one is found by name, whether it is a tensor or a text."""
    values = [
        {f"layers.{index}": np.full(1000, index, "float32") for index in range(100)} | {"lr": 0.1} for _ in range(2)
    ]
    if scalar:
        values[1]["lr"] = 0.2
        assert ("lr", "0.1", "0.2") == ((found := Pair(*values).found).leaf, found.first, found.second)
    else:
        values[1][f"layers.{layer}"][element:] = -1
        found = Pair(*values).found
        assert (f"layers.{layer}", element, str(layer), "-1") == (
            *(found.leaf, found.element),
            *(found.first, found.second),
        )


@pytest.mark.parametrize(
    ("tensors", "size"),
    [(1, 250_000_000), (1, 500_000_000), (1, 700_000_000), (148, 1_700_000), (290, 1_700_000), (576, 400_000)],
)
@pytest.mark.parametrize("place", [0.0, 0.4711, 1.0])
def test_bytes_of_a_gigabyte(tensors: int, size: int, place: float):
    """In a gigabyte, an element is found with four messages of each agent, of less than 370 bytes together."""
    wrong = int(place * (tensors - 1)), int(place * (size - 1))
    pair = Pair(Large(tensors, size), Large(tensors, size, wrong))
    found = pair.found
    assert (wrong[1], "1.12345678", "0.51234567") == (found.element, found.first, found.second)
    assert (f".{wrong[0]}." in found.leaf) is (tensors > 1)
    assert max(pair.carried) < 370
    assert max(pair.messages) <= 4


def test_other_shapes():
    """If two leaves are of different shapes, the search ends with the selection to compare step by step."""
    values = [{f"w{index}": np.zeros(10 + (index == 77) * wrong) for index in range(100)} for wrong in range(2)]
    client = Pair(*values).client
    assert (None, Selection(77, 78)) == (client.difference, client.rest)


def test_failure():
    """If a process fails meanwhile, the reason is the result."""
    assert "no answer within 6 s" == Pair(array(1), array(4), "no answer within 6 s").found.note


def test_values_that_become_equal():
    """A search among values that change meanwhile ends without a result."""
    client = Pair(array(1), array(4), array(1)).client
    assert (None, Selection()) == (client.difference, client.rest)


def test_bits_that_the_text_does_not_show():
    """Different bits with equal texts are reported as such."""
    bits = np.zeros(100, "uint32")
    bits[50] = 0x7FC00000
    others = bits.copy()
    others[50] += 1
    found = Pair(bits.view("float32"), others.view("float32")).found
    assert "the values differ in bits that their text form does not show" == found.note


@given(
    st.lists(
        st.binary(max_size=30)
        | st.builds(lambda kind, rest: bytes([kind]) + rest, st.integers(0, 255), st.binary(max_size=30)),
        max_size=10,
    )
)
def test_anything_is_answered(messages: list[bytes]):
    """Any bytes from the other side give a message, and any message gives a state."""
    value = array(1, 100)
    search = PairedSearch(fingerprint(value, Selection(), FOREVER))
    client = PairedValues(SearchStart(5678, 0, first_parts(fingerprint(value, Selection(), FOREVER))))
    for message in messages:
        assert answer(search, value, message)
        if client.next() is not None:
            client.received(message)
    repr(search)
    repr(client)

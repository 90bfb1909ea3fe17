"""Facts about the search for the first difference, with the job's own checksums."""

import json
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_agent.values.contents import fingerprint
from relay_core.agent_api.evaluation import Difference, Selection, Value
from relay_core.difference_search import Search
from relay_core.records import encode

FOREVER = time.monotonic() + 1e6


def search(first: Any, second: Any) -> tuple[Difference, int]:
    """Return the difference of two values, and the bytes of all responses."""
    sent = 0

    def both(selection: Selection) -> tuple[Value, Value]:
        nonlocal sent
        values = fingerprint(first, selection, FOREVER), fingerprint(second, selection, FOREVER)
        sent += sum(len(json.dumps(encode(value))) for value in values)
        return values

    found = Search(*both(Selection()))
    while (selection := found.next()) is not None:
        found.received(*both(selection))
    assert found.difference is not None
    return found.difference, sent


def weights(number: int = 300, size: int = 1000) -> dict[str, Any]:
    return {f"layers.{index}.weight": np.full(size, index, "float32") for index in range(number)}


@settings(max_examples=20)
@given(st.integers(0, 299), st.integers(0, 999))
def test_first_wrong_element(layer: int, element: int):
    """Among 300 arrays, the wrong element is found by name and index; later differences do not matter."""
    wrong = weights()
    wrong[f"layers.{layer}.weight"][element:] = -1
    difference, sent = search(wrong, weights())
    assert (f"layers.{layer}.weight", element, "-1", str(layer)) == (
        *(difference.leaf, difference.element),
        *(difference.first, difference.second),
    )
    assert sent < 8 * 1024


def test_shape_and_dtype():
    """Arrays of other shape or dtype differ as a whole."""
    found, _ = search({"w": np.zeros(4)}, {"w": np.zeros((2, 2))})
    assert ("w", None, "(4,) float64", "(2, 2) float64") == (found.leaf, found.element, found.first, found.second)
    found, _ = search(np.zeros(4, "float32"), np.zeros(4))
    assert ("(4,) float32", "(4,) float64") == (found.first, found.second)


def test_keys():
    """A key that only one value has is named, and so is the first of other names."""
    found, _ = search({**weights(5), "extra": np.zeros(3)}, weights(5))
    assert ("extra", "(3,) float64", "missing") == (found.leaf, found.first, found.second)
    found, _ = search({"b": np.zeros(3)}, {"a": np.zeros(3)})
    assert ("'b' (3,) float64", "'a' (3,) float64") == (found.first, found.second)


def test_other_values():
    """What has no elements is compared by its text."""
    found, _ = search({"lr": 0.1, "w": np.zeros(3)}, {"lr": 0.2, "w": np.zeros(3)})
    assert ("lr", "0.1", "0.2") == (found.leaf, found.first, found.second)


def test_bits_count():
    """A NaN equals the same NaN, and 0.0 differs from -0.0."""
    nan = np.array([np.nan, 1.0])
    assert fingerprint(nan, Selection(), FOREVER) == fingerprint(nan.copy(), Selection(), FOREVER)
    found, _ = search(np.array([0.0]), np.array([-0.0]))
    assert ("0.0", "-0.0") == (found.first, found.second)


def test_value_that_changes():
    """A search among values that change meanwhile ends."""
    one, other = (fingerprint(weights(40, number), Selection(), FOREVER) for number in (10, 11))
    found = Search(one, other)
    while found.next() is not None:
        found.received(one, one)
    assert found.difference is not None
    assert "the values keep changing" == found.difference.note


@pytest.mark.parametrize("error", ["no answer", "NameError: w"])
def test_failure(error: str):
    """If a rank does not respond any more, the search ends with the reason."""
    one, other = (fingerprint(weights(40, number), Selection(), FOREVER) for number in (10, 11))
    found = Search(one, other)
    found.received(Value(error=error), other)
    assert error == found.difference.note if found.difference else None


def test_impossible_parts():
    """Parts that a value of this size does not have are left out."""
    one, other = (Value(digest=last, leaves=1, parts=("aaaaaa", last)) for last in ("bbbbbb", "cccccc"))
    found = Search(one, other)
    assert found.difference is not None
    assert "the checksums differ, but no differing part was found" == found.difference.note

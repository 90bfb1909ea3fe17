"""Facts about the question about a watched line."""

import threading
from typing import Any

import pytest

from relay_core.agent_api.evaluation import Leaf, Selection, Value
from relay_core.agent_api.watch import MAX_LASTS, Compared, Hit, Watch, Watched
from relay_core.errors import UsageError
from relay_core.records import encode, parse

VALID = {"id": "1", "file": "train.py", "line": 88}


def test_question() -> None:
    """A question is the same after it was sent, and has the user whom the agent knows, whatever the client has sent."""
    question = Watch(**VALID, expression="loss", every=100, after={"5678": 7}, user="mallory")
    assert Watch(**VALID, expression="loss", every=100, after={"5678": 7}, user="alice") == Watch.parse_body(
        encode(question), "alice"
    )


@pytest.mark.parametrize(
    "field",
    [
        {"id": ""},
        {"line": 0},
        {"file": ""},
        {"every": 0},
        {"lasts": 0.0},
        {"lasts": MAX_LASTS + 1},
        {"condition": "x" * 20_000},
        {"expression": "x" * 20_000},
    ],
)
def test_invalid_question(field: dict[str, Any]) -> None:
    """A question without a place, with an invalid frequency or duration or with a long expression is refused."""
    with pytest.raises(UsageError):
        Watch.parse_body(encode(Watch(**{**VALID, **field})))


def test_gradients() -> None:
    """A question about gradients needs no place."""
    question = Watch(id="1", gradients=True, is_holding=True, user="alice")
    assert question == Watch.parse_body(encode(question), "alice")


@pytest.mark.parametrize("selection", [Selection(), Selection(3), Selection(1, 2, (5, 9))])
def test_comparison(selection: Selection) -> None:
    """A question about a comparison needs no place, and it and its answer are the same after they were sent."""
    question = Watch(id="1", expression="model", selection=selection, user="alice")
    assert question == Watch.parse_body(encode(question), "alice")
    value = Value(digest="12", leaves=1, parts=("abcdef",), leaf=Leaf("w", "[2] float32", 2, ("1.0",)))
    answer = Watched((Hit(1, 2, 3.5, "step 1", compared=Compared(value, selection, "0,2")),))
    assert answer == parse(Watched, encode(answer))


def test_longest_duration() -> None:
    """A watch may last as long as a thread can wait on any system: 2**32 - 2 ms on Windows."""
    assert (2**32 - 2) // 1000 == MAX_LASTS <= threading.TIMEOUT_MAX
    assert MAX_LASTS == Watch.parse_body({**VALID, "lasts": MAX_LASTS}).lasts


def test_answer() -> None:
    """An answer is the same after it was sent."""
    answer = Watched((Hit(1, 2, 3.5, "0.1"), Hit(2, 3, 4.5, error="NameError")), place="step train.py:88", reached=3)
    assert answer == parse(Watched, encode(answer))

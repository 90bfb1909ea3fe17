"""Facts about the commands of the Debug Console about values."""

from typing import Any

import pytest

from relay_client.compare.console import Command, question_of, with_statistics
from relay_core.dap.messages import Request


def typed(text: object, context: str = "repl") -> Request:
    arguments: dict[str, Any] = {"expression": text, "frameId": 7, "context": context}
    return {"seq": 1, "type": "request", "command": "evaluate", "arguments": arguments}


def test_all():
    """`@all` asks all ranks for a value, `@diff` for checksums."""
    assert Command("all", "loss.item()") == question_of(typed("@all loss.item()"))
    assert Command("diff", "model") == question_of(typed(" @diff  model "))


def test_hang():
    """`@hang` asks all ranks for their process groups."""
    assert Command("hang") == question_of(typed("@hang"))


def test_statistics():
    """`@stats` is replaced by an expression that the job evaluates, in the same frame."""
    changed = with_statistics(typed("@stats x[0]"))
    expression = "__import__('relay_agent').stats(x[0])"
    assert {"expression": expression, "frameId": 7, "context": "repl"} == changed["arguments"]


@pytest.mark.parametrize(
    "request_",
    [
        typed("loss"),
        typed("@all"),
        typed("@group 0"),
        typed("@hang 3"),
        typed("a @ b"),
        typed("@all x", "watch"),
        typed(None),
    ],
)
def test_other_input(request_: Request):
    """Everything else is left as it is: expressions, other commands, and watch expressions."""
    assert question_of(request_) is None
    assert with_statistics(request_) is request_

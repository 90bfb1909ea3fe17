"""Facts about the commands of the Debug Console about values."""

from typing import Any

import pytest

from relay_client.compare.console import Command, command_of, with_formats, with_statistics
from relay_core.dap.messages import Request


def typed(text: object, context: str = "repl") -> Request:
    arguments: dict[str, Any] = {"expression": text, "frameId": 7, "context": context}
    return {"seq": 1, "type": "request", "command": "evaluate", "arguments": arguments}


def test_all():
    """`@all` asks all ranks for a value, `@diff` for checksums."""
    assert Command("all", "loss.item()") == command_of(typed("@all loss.item()"))
    assert Command("diff", "model") == command_of(typed(" @diff  model "))


def test_hang():
    """`@hang` asks all ranks for their process groups."""
    assert Command("hang") == command_of(typed("@hang"))


def test_statistics():
    """`@stats` is replaced by an expression that the job evaluates, in the same frame."""
    changed = with_statistics(typed("@stats x[0]"))
    expression = "__import__('relay_agent').stats(x[0])"
    assert {"expression": expression, "frameId": 7, "context": "repl"} == changed["arguments"]


@pytest.mark.parametrize(
    "request_",
    [
        typed("loss"),
        typed("a @ b"),
        typed("@all x", "watch"),
        typed(None),
    ],
)
def test_other_input(request_: Request):
    """Everything else is left as it is: expressions, other commands, and watch expressions."""
    assert with_statistics(request_) is request_


def test_commands_of_a_session_of_one_rank():
    """Whatever begins with `@` is a command there, because it is not an expression."""
    assert Command("ranks") == command_of(typed("@ranks"))
    assert Command("group", "0") == command_of(typed("@group 0"))
    assert command_of(typed("a @ b")) is None


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        ("loss {loss:.5f}", "loss {format((loss), '.5f')}"),
        ("{x!r} {x!s:>5}", "{format(repr(x), '')} {format(str(x), '>5')}"),
        ("{x['a'][1:2]} {x == 1}", None),
        ("{f(x, y):,}", "{format((f(x, y)), ',')}"),
        ("{} {for} no", None),
        ("no braces", None),
    ],
)
def test_formats(message: str, changed: str | None):
    """A format or conversion in a log message becomes a call, because debugpy evaluates what is between braces."""
    arguments: dict[str, Any] = {"breakpoints": [{"line": 1, "logMessage": message}, {"line": 2}, None]}
    request: Request = {"seq": 1, "type": "request", "command": "setBreakpoints", "arguments": arguments}
    found = with_formats(request)
    if changed is None:
        assert found is request
    else:
        assert [{"line": 1, "logMessage": changed}, {"line": 2}, None] == found["arguments"]["breakpoints"]

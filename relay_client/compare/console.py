"""Commands in the debug console: `@all EXPRESSION`, `@diff EXPRESSION`, `@stats EXPRESSION` and `@hang`; sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relay_core.agent_api.evaluation import Evaluate, Selection
from relay_core.agent_api.requests import Collectives
from relay_core.dap.messages import Request, arguments_of

__all__ = ["DIFF_SECONDS", "VALUE_SECONDS", "OnQuestion", "Question", "question_of", "with_statistics"]

Question = Evaluate | Collectives
"""A question to all ranks."""
OnQuestion = Callable[[Request, Question], None]
"""Asks all ranks, and then answers the editor's request."""

VALUE_SECONDS = 5.0
"""Seconds that each rank has to evaluate a value."""
DIFF_SECONDS = 60.0
"""Seconds that each rank has for a comparison; a gigabyte takes about one second, or longer if it is on a device."""


@dataclass(frozen=True)
class _Command:
    name: str
    expression: str


def question_of(request: Request) -> Question | None:
    """Return the question that `@all`, `@diff` or `@hang` in the debug console asks all ranks; None for other input."""
    command = _command(request)
    match command:
        case _Command("all", expression) if expression:
            return Evaluate(expression, seconds=VALUE_SECONDS)
        case _Command("hang", ""):
            return Collectives()
        case _Command("diff", expression) if expression:
            return Evaluate(expression, seconds=DIFF_SECONDS, selection=Selection())
    return None


def with_statistics(request: Request) -> Request:
    """Return a request from the console, with `@stats x` replaced by an expression for the job."""
    match _command(request):
        case _Command("stats", expression) if expression:
            changed = f"__import__('relay_agent').stats({expression})"
            return {**request, "arguments": {**arguments_of(request), "expression": changed}}
    return request


def _command(request: Request) -> _Command | None:
    arguments = arguments_of(request)
    text = arguments.get("expression")
    if arguments.get("context") != "repl" or not isinstance(text, str) or not text.lstrip().startswith("@"):
        return None
    name, _, rest = text.strip()[1:].partition(" ")
    return _Command(name, rest.strip())

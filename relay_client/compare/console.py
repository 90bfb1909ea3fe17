"""Commands of the debug console: `@all EXPRESSION`, `@diff EXPRESSION` and `@stats EXPRESSION`; sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relay_core.agent_api.evaluation import Evaluate, Selection
from relay_core.dap.messages import Request
from relay_core.dap.prefetch import arguments_of

__all__ = ["DIFF_SECONDS", "VALUE_SECONDS", "OnComparison", "comparison_of", "with_statistics"]

OnComparison = Callable[[Request, Evaluate], None]
"""Evaluates in all ranks, and then answers the request of the editor."""

VALUE_SECONDS = 5.0
"""Time limit for a value in each rank."""
DIFF_SECONDS = 60.0
"""The same for a comparison: a checksum of a gigabyte takes two seconds, and longer from a device."""


@dataclass(frozen=True)
class _Command:
    name: str
    expression: str


def comparison_of(request: Request) -> Evaluate | None:
    """Return what `@all` or `@diff` in an `evaluate` of the console asks all ranks; None if it is something else."""
    command = _command(request)
    match command:
        case _Command("all", expression) if expression:
            return Evaluate(expression, seconds=VALUE_SECONDS)
        case _Command("diff", expression) if expression:
            return Evaluate(expression, seconds=DIFF_SECONDS, selection=Selection())
    return None


def with_statistics(request: Request) -> Request:
    """Return a request of the console in which `@stats x` is replaced by an expression for the job."""
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

"""Commands in the debug console: `@all EXPRESSION`, `@diff EXPRESSION`, `@stats EXPRESSION` and `@hang`; sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relay_core.dap.messages import Request, arguments_of

__all__ = ["Command", "OnQuestion", "question_of", "with_statistics"]


@dataclass(frozen=True)
class Command:
    """A command that begins with `@`."""

    name: str
    expression: str = ""


OnQuestion = Callable[[Request, Command], None]
"""Asks all ranks, and then answers the editor's request."""


def question_of(request: Request) -> Command | None:
    """Return an `@all`, `@diff` or `@hang` from the debug console, which ask all ranks; None for other input."""
    match command := _command(request):
        case Command("all" | "diff", expression) if expression:
            return command
        case Command("hang", ""):
            return command
    return None


def with_statistics(request: Request) -> Request:
    """Return a request from the console, with `@stats x` replaced by an expression for the job."""
    match _command(request):
        case Command("stats", expression) if expression:
            changed = f"__import__('relay_agent').stats({expression})"
            return {**request, "arguments": {**arguments_of(request), "expression": changed}}
    return request


def _command(request: Request) -> Command | None:
    arguments = arguments_of(request)
    text = arguments.get("expression")
    if arguments.get("context") != "repl" or not isinstance(text, str) or not text.lstrip().startswith("@"):
        return None
    name, _, rest = text.strip()[1:].partition(" ")
    return Command(name, rest.strip())

"""Commands in the debug console, such as `@all EXPRESSION`, and log messages with formats; sans-IO."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from relay_core.dap.messages import Request, arguments_of

HELP = (
    "use @ranks, @all EXPRESSION, @diff EXPRESSION, @stats EXPRESSION or @hang; in the session of all ranks, also "
    "@group all, @group here, @group 0,3-5, @expand 0-7, @expand or @collapse"
)


@dataclass(frozen=True)
class Command:
    """A command that begins with `@`."""

    name: str
    expression: str = ""


OnQuestion = Callable[[Request, Command], None]
"""Asks all ranks, and then answers the editor's request."""


def with_statistics(request: Request) -> Request:
    """Return a request from the console, with `@stats x` replaced by an expression for the job."""
    match command_of(request):
        case Command("stats", expression) if expression:
            changed = f"__import__('relay_agent').stats({expression})"
            return {**request, "arguments": {**arguments_of(request), "expression": changed}}
    return request


IN_BRACES = re.compile(r"\{([^{}]*)\}")
"""An expression in the message of a logpoint."""
_CONVERSIONS = {ord("s"): "str", ord("r"): "repr", ord("a"): "ascii"}


def with_formats(request: Request) -> Request:
    """Return a `setBreakpoints` with `{x:.5f}` and `{x!r}` in log messages replaced by what debugpy evaluates."""
    arguments = arguments_of(request)
    wanted, changed = arguments.get("breakpoints"), []
    for each in wanted if isinstance(wanted, list) else ():
        message = each.get("logMessage") if isinstance(each, dict) else None
        changed.append({**each, "logMessage": IN_BRACES.sub(_formatted, message)} if isinstance(message, str) else each)
    return {**request, "arguments": {**arguments, "breakpoints": changed}} if changed != (wanted or []) else request


def _formatted(found: re.Match[str]) -> str:
    """Return `{format(x, '.5f')}` for `{x:.5f}`; braces without a format, or without an expression, are unchanged."""
    try:
        match ast.parse(f"f'''{found[0]}'''", mode="eval").body:
            case ast.JoinedStr(values=[ast.FormattedValue(value, conversion, form)]) if form or conversion > 0:
                spec = ast.literal_eval(form.values[0]) if isinstance(form, ast.JoinedStr) and form.values else ""
                return f"{{format({_CONVERSIONS.get(conversion, '')}({ast.unparse(value)}), {spec!r})}}"
    except (SyntaxError, ValueError, RecursionError):
        pass
    return found[0]


def command_of(request: Request) -> Command | None:
    """Return a command from the debug console, even if it is unknown; None for other input."""
    arguments = arguments_of(request)
    text = arguments.get("expression")
    if arguments.get("context") != "repl" or not isinstance(text, str) or not text.lstrip().startswith("@"):
        return None
    name, _, rest = text.strip()[1:].partition(" ")
    return Command(name, rest.strip())

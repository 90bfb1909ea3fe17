"""The job's source lines, and the functions in them.

The lines come from the job's `linecache`, because a file with the same name on this machine may be a different version.
If the job is running and cannot evaluate an expression, the lines are read from a local file.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Awaitable, Callable, Sequence

from relay_core.errors import RelayDebugError

__all__ = ["Source", "argument_names", "function_lines", "numbered"]

Place = tuple[str, int]
"""A path in the job, and a line counted from 1."""


class Source:
    """Cache of source lines; each line is requested from the job once.

    Args:
        evaluate: Evaluates an expression in the job and returns its value, a literal.
    """

    def __init__(self, evaluate: Callable[[str], Awaitable[object]]) -> None:
        self._evaluate = evaluate
        self._files: dict[str, list[str]] = {}
        self._lines: dict[Place, str] = {}

    async def file(self, path: str) -> list[str]:
        """Return the lines of a file, with their line breaks; an empty list if it is not available."""
        if path not in self._files:
            found = await self._evaluate_or_none(f"''.join(__import__('linecache').getlines({path!r}))")
            if not isinstance(found, str):
                return linecache.getlines(path)
            self._files[path] = found.splitlines(keepends=True)
        return self._files[path]

    async def lines(self, places: Sequence[Place]) -> list[str]:
        """Return single lines without indentation; "" for those that are not available."""
        missing = [place for place in places if place not in self._lines]
        if missing:
            expression = f"[__import__('linecache').getline(*place).strip() for place in {missing!r}]"
            found = await self._evaluate_or_none(expression)
            if not isinstance(found, list) or len(found) != len(missing):
                return [linecache.getline(*place).strip() for place in places]
            self._lines.update(zip(missing, map(str, found), strict=True))
        return [self._lines[place] for place in places]

    async def _evaluate_or_none(self, expression: str) -> object:
        try:
            return await self._evaluate(expression)
        except RelayDebugError:  # the job is running or has exited
            return None


def numbered(lines: Sequence[str], first: int, last: int, *, current: int = 0) -> list[str]:
    """Return lines `first` to `last` of a file with their numbers, in pdb's format; line `current` is marked."""
    shown = range(max(first, 1), min(last, len(lines)) + 1)
    return [
        f"{number:>3} {'->' if number == current else '  '} {lines[number - 1].rstrip()}".rstrip() for number in shown
    ]


def function_lines(lines: Sequence[str], line: int) -> tuple[int, int]:
    """Return the first and last line of the innermost function around a line; outside functions, of the file."""
    function = _function_at(lines, line)
    return (function.lineno, function.end_lineno or line) if function else (1, len(lines))


def argument_names(lines: Sequence[str], line: int) -> list[str] | None:
    """Return the names of the parameters of the innermost function around a line; None outside functions."""
    function = _function_at(lines, line)
    if function is None:
        return None
    found = function.args
    names = [*found.posonlyargs, *found.args, found.vararg, *found.kwonlyargs, found.kwarg]
    return [name.arg for name in names if name is not None]


def _function_at(lines: Sequence[str], line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):  # written for another version of Python, or not Python
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)

"""Paths to a value: names, attributes and constant indices or keys, which are read without executing code; sans-IO.

model.layers[3].weight      a path
config["optimizer"]["lr"]   a path
loss.item(), x + 1, f"{x}"  refused: a call, an operator and a format can execute code in the job
"""

from __future__ import annotations

import ast

from relay_core.agent_api.evaluation import PLAIN_READER
from relay_core.errors import UsageError

PATH_HINT = "use only names, attributes and constant indices or keys, such as model.layers[3].weight"
SHOWN = 101
"""Number of elements that are copied from each container to be shown; the text is cut off after 100."""

Steps = list[tuple[str, object]]


def as_plain_read(expression: str, *, completely: bool) -> str:
    """Return the expression that copies the value of a path into built-in types, without executing the job's code.

    It is a call of `relay_agent.values.plain.read_plain`, by a name that the agent defines, because an import would
    call the job's `__import__` if the job has one.

    Args:
        expression: The path.
        completely: Whether the value is copied completely, for a comparison, and not only as far as it is shown.

    Raises:
        UsageError: the expression is not a path.
    """
    name, steps = parse_path(expression)
    width = None if completely else SHOWN
    return f"{PLAIN_READER}({', '.join([repr(width), repr(name), name, *map(repr, steps)])})"


def parse_path(expression: str) -> tuple[str, Steps]:
    """Return the name with which a path begins, and its steps.

    Raises:
        UsageError: the expression is not a path.
    """
    try:
        node = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"'{expression[:80]}' is not a path", hint=PATH_HINT) from None
    steps: Steps = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(("attribute", node.attr))
        elif isinstance(node, ast.Subscript):
            steps.append(("element", _constant(node.slice, expression)))
        else:
            raise _refusal(expression)
        node = node.value
    return node.id, steps[::-1]


def _constant(node: ast.expr, expression: str) -> str | int:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _refusal(expression) from None
    if type(value) not in {str, int}:
        raise _refusal(expression)
    return value  # type: ignore[no-any-return]  # checked above


def _refusal(expression: str) -> UsageError:
    return UsageError(f"'{expression[:80]}' could execute code in the job, but only reading is allowed", hint=PATH_HINT)

"""The expressions permitted without `--allow-control`: names, attributes and constant indices or keys; sans-IO.

    model.layers[3].weight      allowed
    config["optimizer"]["lr"]   allowed
    loss.item(), x + 1, f"{x}"  refused: a call, an operator and a format can execute code in the job

Attribute access also executes code if it reaches a property or a `__getattr__`. A path is therefore not evaluated as it
is, but read by `relay_agent.values.static_path` in the job, which refuses properties and `__getattr__`. It is called by
a name that the agent defines, because an import would call the job's `__import__` if the job has one. In a job whose
relay_agent does not define that name, only single names can be evaluated.
"""

from __future__ import annotations

import ast

from relay_core.agent_api.evaluation import PATH_READER
from relay_core.errors import RelayDebugError

__all__ = ["ControlRefused", "as_static_read"]


class ControlRefused(RelayDebugError):
    """The call requires `--allow-control`, or the rank cannot be controlled at the moment."""


def as_static_read(expression: str) -> str:
    """Return the expression that reads a path in the job without executing the job's code.

    Raises:
        ControlRefused: the expression is not a path.
    """
    try:
        node = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refusal(expression) from None
    steps: list[tuple[str, object]] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(("attribute", node.attr))
        elif isinstance(node, ast.Subscript):
            steps.append(("element", _constant(node.slice, expression)))
        else:
            raise _refusal(expression)
        node = node.value
    if not steps:
        return node.id
    return f"{PATH_READER}({', '.join([node.id, *map(repr, reversed(steps))])})"


def _constant(node: ast.expr, expression: str) -> str | int:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _refusal(expression) from None
    if type(value) not in {str, int}:
        raise _refusal(expression)
    return value  # type: ignore[no-any-return]  # checked above


def _refusal(expression: str) -> ControlRefused:
    return ControlRefused(
        f"'{expression[:80]}' could execute code in the job, but this server is read-only",
        hint="use only names, attributes and constant indices or keys, such as model.layers[3].weight; to permit other "
        "expressions, the user must start 'relay-client mcp' with --allow-control",
    )

"""The name `RANK` in conditions and logpoints: each rank receives them with its own number in place of the name.

    RANK == 3 and loss > 10      rank 3 receives   3 == 3 and loss > 10
    rank {RANK}: {loss}          rank 3 receives   rank {3}: {loss}

The debugger evaluates a condition with the variables of the frame. If `RANK` were set as a variable of the job instead,
the job would see it, and so would every other session.
"""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from relay_core.dap.messages import Body

__all__ = ["NAME", "for_rank"]

NAME = "RANK"
_IN_BRACES = re.compile(r"\{([^{}]*)\}")
"""An expression in the message of a logpoint."""


def for_rank(breakpoint_: Body, rank: int | None) -> Body:
    """Return a breakpoint as a rank receives it; it is unchanged for a process without a rank."""
    if rank is None:
        return breakpoint_
    changed = dict(breakpoint_)
    if _has_name(condition := changed.get("condition")):
        changed["condition"] = _with_number(condition, rank)
    if _has_name(message := changed.get("logMessage")):
        changed["logMessage"] = _IN_BRACES.sub(lambda found: f"{{{_with_number(found[1], rank)}}}", message)
    return changed


def _has_name(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and NAME in text


def _with_number(expression: str, rank: int) -> str:
    """Return an expression with the number in place of the name, or unchanged if it is invalid or binds the name."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return expression  # the debugger reports the error
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == NAME]
    is_bound = any(not isinstance(node.ctx, ast.Load) for node in names)
    is_bound |= any(isinstance(node, ast.arg) and node.arg == NAME for node in ast.walk(tree))
    return ast.unparse(_Number(rank).visit(tree)) if names and not is_bound else expression


class _Number(ast.NodeTransformer):
    def __init__(self, rank: int) -> None:
        self._rank = rank

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._rank) if node.id == NAME else node

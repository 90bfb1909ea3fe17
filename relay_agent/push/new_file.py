"""The new content of a source file: its code objects by qualified name, and the statements of its top level.

This module does not know the running module, and executes code only in `NewFile.run`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import NamedTuple

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_IMMUTABLE = (int, float, complex, bool, str, bytes, type(None), type(...))


class NewFunction(NamedTuple):
    """A function in the file."""

    code: CodeType
    node: Function


class NewFile:
    """A compiled file.

    Args:
        source: Its text.
        filename: The file name for its code objects.

    Raises:
        SyntaxError: the text is not valid Python.
        ValueError: it contains a zero byte.
    """

    def __init__(self, source: str, filename: str) -> None:
        self.source = source
        self.filename = filename
        self.tree = ast.parse(source.removeprefix("\ufeff"), filename)  # a byte order mark
        self.functions: dict[str, list[NewFunction]] = {}
        """The functions by qualified name, in their order in the file."""
        code = compile(self.tree, filename, "exec", dont_inherit=True)
        functions = (node for node in ast.walk(self.tree) if isinstance(node, Function))
        nodes = {(getattr(node, "name", "<lambda>"), _first_line(node)): node for node in functions}
        for name, found in qualified_codes(code):
            node = nodes.get((found.co_name, found.co_firstlineno))
            if node is not None:
                self.functions.setdefault(name, []).append(NewFunction(found, node))

    def run(self, statements: Iterable[ast.stmt], names: dict[str, object], into: dict[str, object]) -> None:
        """Execute statements with the global names `names`; the names that they bind are added to `into`."""
        futures = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        module = ast.Module([*futures, *statements], [])
        scratch: dict[str, object] = {}
        exec(compile(module, self.filename, "exec", dont_inherit=True), names, scratch)  # noqa: S102 - what a push is
        imported = {name for node in futures for name in bound_names(node)}
        into |= {name: value for name, value in scratch.items() if name not in imported}


def qualified_codes(code: CodeType, within: str = "") -> Iterator[tuple[str, CodeType]]:
    """Return the code objects inside a code object, with their qualified names."""
    for found in code.co_consts:
        if isinstance(found, CodeType):
            name = f"{within}{found.co_name}"
            if sys.version_info >= (3, 11):
                name = found.co_qualname
            yield name, found
            is_function = bool(found.co_flags & inspect.CO_OPTIMIZED)
            yield from qualified_codes(found, f"{name}.<locals>." if is_function else f"{name}.")


def constant(node: ast.expr | None) -> tuple[object] | None:
    """Return, in a tuple, the value of an expression if it is an immutable literal; else return None."""
    try:
        value = ast.literal_eval(node) if node is not None else []
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
    return (value,) if is_immutable(value) else None


def bound_names(node: ast.stmt) -> list[str]:
    """Return the names that a definition, an import or an assignment binds."""
    if isinstance(node, Definition):
        return [node.name]
    if isinstance(node, ast.Import):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def assigned_constant(node: ast.stmt | None) -> tuple[str, object] | None:
    """Return the name and value in a statement that assigns an immutable literal to one name."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and len(names := bound_names(node)) == 1:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = constant(node.value)
        return (names[0], value[0]) if value is not None and len(targets) == 1 else None
    return None


def is_immutable(value: object) -> bool:
    """Return whether a value is a constant, or a tuple of constants."""
    return type(value) in _IMMUTABLE or (type(value) is tuple and all(map(is_immutable, value)))


def _first_line(node: Function) -> int:
    """Return the first line of a function, as in its code object: the line of the first decorator, if any."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])

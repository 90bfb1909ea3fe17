"""The content of a file that this process is running, as far as it is known.

The content on disk may have been changed since the process has loaded it. It is trusted if most of the functions of
this process equal those that it contains. Without it, changes of constants, imports and base classes are not noticed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType

from relay_agent.push.functions import is_equivalent
from relay_agent.push.new_file import NewFile, bound_names

__all__ = ["OldFile"]


class OldFile:
    """What a file contained.

    Args:
        file: The compiled content; None if it is unknown.
    """

    def __init__(self, file: NewFile | None = None) -> None:
        self.is_known = file is not None
        self.names: set[str] = set()
        """The qualified names of all definitions and assignments."""
        self._statements: set[tuple[str, str]] = set()
        """All statements of the module and of its classes, with the name of the class."""
        self._nodes: dict[str, ast.stmt] = {}
        if file is not None:
            self._read(file.tree.body, "")

    def __repr__(self) -> str:
        return f"<OldFile {len(self._statements)} statements>" if self.is_known else "<OldFile unknown>"

    def has(self, statement: ast.stmt, within: str = "") -> bool:
        """Return whether a statement was there, at the top level of the module or of a class."""
        return (within, ast.dump(statement)) in self._statements

    def node(self, name: str) -> ast.stmt | None:
        """Return what defined or assigned a qualified name; None if unknown."""
        return self._nodes.get(name)

    @classmethod
    def find(cls, filename: str, pushed: str | None, functions: Iterable[FunctionType]) -> OldFile:
        """Return the content of a file that these functions are from: what was pushed last, or what is on disk."""
        try:
            source = Path(filename).read_text(encoding="utf-8") if pushed is None else pushed
            file = NewFile(source, filename)
        except (OSError, SyntaxError, ValueError):
            return cls()
        codes = [new.code for found in file.functions.values() for new in found]
        alike = [any(is_equivalent(each.__code__, code) for code in codes) for each in functions]
        return cls(file if 2 * sum(alike) >= len(alike) else None)

    def _read(self, body: list[ast.stmt], within: str) -> None:
        for node in body:
            self._statements.add((within.rstrip("."), ast.dump(node)))
            for name in bound_names(node):
                self._nodes[within + name] = node
                self.names.add(within + name)
            if isinstance(node, ast.ClassDef):
                self._read(node.body, f"{within}{node.name}.")

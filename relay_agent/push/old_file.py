"""The content of a file that this process is running, as far as it is known.

The content on disk may have changed since the process loaded the file. It is trusted if the file is older than the
process and at least half of the file's functions in this process are equivalent to those on disk. Otherwise, changes to
constants, imports and base classes are not noticed.
"""

from __future__ import annotations

import ast
import dis
import inspect
import marshal
import os
from collections.abc import Iterable
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, FunctionType

from relay_agent.paths import start_time
from relay_agent.push.functions import is_equivalent
from relay_agent.push.new_file import NewFile, bound_names, is_immutable, qualified_codes

__all__ = ["OldFile", "cached_constants", "constants_of"]


# The constants in the bytecode that an import has cached: what a file assigned before it was edited.
#
# The cache may be older or newer than the text that the process has loaded, so a caller has to compare the cached
# values with those of the process.

HEADER = 16
"""Bytes before the code: the magic number of the version, flags, and time and size of the source (PEP 552)."""


def cached_constants(path: str) -> dict[str, object]:
    """Return the constants in a .pyc file as `constants_of` does; {} if it cannot be read.

    Args:
        path: `__spec__.cached` of a module; "" if it has none.
    """
    try:
        data = Path(path).read_bytes() if path else b""
        code = marshal.loads(data[HEADER:]) if data.startswith(MAGIC_NUMBER) else None  # noqa: S302 - as an import does
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return constants_of(code) if isinstance(code, CodeType) else {}


def constants_of(code: CodeType) -> dict[str, object]:
    """Return the immutable constants that a module and its classes assign, by qualified name.

    Names that are assigned more than once are omitted.
    """
    found = _assigned(code, "")
    for name, inner in qualified_codes(code):
        is_class = not inner.co_flags & inspect.CO_OPTIMIZED and "<" not in name
        found |= _assigned(inner, f"{name}.") if is_class else {}
    return found


def _assigned(code: CodeType, within: str) -> dict[str, object]:
    constants: dict[str, object] = {}
    stored: set[str] = set()
    loaded: tuple[object, ...] = ()
    for each in dis.get_instructions(code):
        if each.opname == "EXTENDED_ARG":
            continue
        if each.opname == "STORE_NAME":
            name = f"{within}{each.argval}"
            constants.pop(name, None)
            if name not in stored and loaded and is_immutable(loaded[0]):
                constants[name] = loaded[0]
            stored.add(name)
        loaded = (each.argval,) if each.opname in {"LOAD_CONST", "LOAD_SMALL_INT"} else ()
    return constants


_created: dict[str, dict[str, ast.ClassDef]] = {}
"""By file: the definitions with which classes were created, as far as they are known; no push executes them again."""


class OldFile:
    """What a file contained.

    Args:
        file: The compiled content; None if it is unknown.
        cached: The cached bytecode of an unknown file; "" if there is none.
    """

    def __init__(self, file: NewFile | None = None, cached: str = "") -> None:
        self.is_known = file is not None
        self.names: set[str] = set()
        """The qualified names of all definitions and assignments."""
        self._statements: set[tuple[str, str]] = set()
        """All statements of the module and of its classes, with the name of the class."""
        self._nodes: dict[str, ast.stmt] = {}
        self.cached = cached_constants(cached) if file is None else {}
        """If the content is unknown: constants that it may have assigned, by qualified name."""
        if file is not None:
            self._read(file.tree.body, "")
        self._created = _created.setdefault(file.filename, {}) if file is not None else {}
        for name, node in self._nodes.items():
            if isinstance(node, ast.ClassDef):
                self._created.setdefault(name, node)

    def __repr__(self) -> str:
        return f"<OldFile {len(self._statements)} statements>" if self.is_known else "<OldFile unknown>"

    def has(self, statement: ast.stmt, within: str = "") -> bool:
        """Return whether a statement was in the file, at the top level of the module or of a class."""
        return (within, ast.dump(statement)) in self._statements

    def node(self, name: str) -> ast.stmt | None:
        """Return the statement that defined or assigned a qualified name; None if unknown."""
        return self._nodes.get(name)

    def created(self, name: str) -> ast.ClassDef | None:
        """Return the definition with which a class was created; None if unknown."""
        return self._created.get(name)

    @classmethod
    def find(cls, filename: str, pushed: str | None, functions: Iterable[FunctionType], cached: str = "") -> OldFile:
        """Return the content of the file that these functions come from: what was last pushed, or what is on disk.

        Args:
            filename: As in the code objects.
            pushed: The text that was last pushed; None if none was pushed.
            functions: All functions from the file in this process.
            cached: Its cached bytecode; "" if there is none.
        """
        try:
            if pushed is None and _changed_at(filename) > start_time():
                return cls(cached=cached)
            source = Path(filename).read_text(encoding="utf-8") if pushed is None else pushed
            file = NewFile(source, filename)
        except (OSError, SyntaxError, ValueError):
            return cls(cached=cached)
        codes = [new.code for found in file.functions.values() for new in found]
        alike = [any(is_equivalent(each.__code__, code) for code in codes) for each in functions]
        return cls(file if 2 * sum(alike) >= len(alike) else None, cached)

    def _read(self, body: list[ast.stmt], within: str) -> None:
        for node in body:
            self._statements.add((within.rstrip("."), ast.dump(node)))
            for name in bound_names(node):
                self._nodes[within + name] = node
                self.names.add(within + name)
            if isinstance(node, ast.ClassDef):
                self._read(node.body, f"{within}{node.name}.")


def _changed_at(filename: str) -> float:
    """Return when a file was written or replaced; `cp -p` and `mv` set only the second of these times."""
    status = os.stat(filename)  # noqa: PTH116 - as the paths of modules
    return max(status.st_mtime, status.st_ctime)

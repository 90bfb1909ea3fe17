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
import warnings
from collections.abc import Iterable, Mapping
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from relay_agent.job.paths import start_time
from relay_agent.push.loaded_code import module_frames, with_inner
from relay_agent.push.new_file import NewFile, NewFunction, bound_names, constant, is_immutable, qualified_codes

# An in-place change to one function: its code, defaults and docstring.


class Change(NamedTuple):
    """A function, and the code, defaults and docstring that it receives."""

    function: FunctionType
    code: CodeType
    defaults: tuple[Any, ...] | None
    keyword_defaults: dict[str, Any] | None
    doc: str | None

    def apply(self) -> None:
        """Change the function."""
        function: Any = self.function
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the new code may be that of a coroutine
            function.__code__ = self.code
        function.__defaults__ = self.defaults
        function.__kwdefaults__ = self.keyword_defaults
        function.__doc__ = self.doc


def change_of(function: FunctionType, new: NewFunction, names: dict[str, Any]) -> Change:
    """Return the change that makes a function match its new definition.

    A default that is an immutable literal is taken from the file. For any other default, the function keeps the object
    that it has for this parameter, because the object may be state; such a default is computed only for a new
    parameter.

    Args:
        function: A function of this process.
        new: Its new definition.
        names: The local names at the definition: for a method, the names of its class.

    Raises:
        Exception: anything that computing a default raises.
    """
    old, arguments = function.__code__, new.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    owned = function.__defaults__ or ()
    before = dict(zip(old.co_varnames[old.co_argcount - len(owned) : old.co_argcount], owned, strict=True))
    before |= function.__kwdefaults__ or {}

    def value(argument: ast.arg, node: ast.expr) -> object:
        if (found := constant(node)) is not None:
            return found[0]
        if argument.arg in before:
            return before[argument.arg]
        code = compile(ast.Expression(node), old.co_filename, "eval", dont_inherit=True)
        return eval(code, function.__globals__, names)  # noqa: S307 - what a push is for

    given = zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
    defaults = tuple(value(argument, node) for argument, node in given)
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    keywords = {argument.arg: value(argument, node) for argument, node in pairs if node is not None}
    doc = None if isinstance(new.node, ast.Lambda) else ast.get_docstring(new.node, clean=False)
    return Change(function, new.code, defaults or None, keywords or None, doc)


def pair(old: list[CodeType], new: list[NewFunction]) -> dict[int, NewFunction]:
    """Return the new function for each old code object, by the id of that object, among functions of the same name.

    Functions that cannot be distinguished are omitted.
    """
    if len(new) == 1:
        return {id(code): new[0] for code in old}
    if len(old) == len(new):
        by_line = sorted(old, key=lambda code: code.co_firstlineno)
        return {id(code): found for code, found in zip(by_line, new, strict=True)}
    paired = {}
    for code in old:
        alike = [found for found in new if _signature(found.code) == _signature(code)]
        if len(alike) == 1:
            paired[id(code)] = alike[0]
    return paired


def is_equivalent(one: object, other: object) -> bool:
    """Return whether two code objects do the same thing, regardless of line numbers, or two constants are equal."""
    if not (isinstance(one, CodeType) and isinstance(other, CodeType)):
        return type(one) is type(other) and repr(one) == repr(other)
    alike = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags", "co_argcount")
    return (
        all(getattr(one, name) == getattr(other, name) for name in (*alike, "co_kwonlyargcount", "co_posonlyargcount"))
        and len(one.co_consts) == len(other.co_consts)
        and all(map(is_equivalent, one.co_consts, other.co_consts))
    )


def has_same_lines(one: CodeType, other: CodeType) -> bool:
    """Return whether two equivalent code objects have the same line numbers."""
    pairs = zip(with_inner(one), with_inner(other), strict=True)
    return all([*a.co_lines()] == [*b.co_lines()] for a, b in pairs)


def _signature(code: CodeType) -> tuple[object, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], code.co_freevars


# The constants in bytecode: what a file assigned before it was edited. An import has cached it, and a main script is
# executing it.
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


def running_constants(filename: str) -> dict[str, object]:
    """Return the constants of a file whose top level is being executed, as `constants_of` does; {} for any other."""
    return next((constants_of(frame.f_code) for frame in module_frames(filename)), {})


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
        loaded: If it is unknown: constants that it may have assigned, by qualified name.
    """

    def __init__(self, file: NewFile | None, loaded: Mapping[str, object]) -> None:
        self.is_known = file is not None
        self._statements: set[tuple[str, str]] = set()
        """All statements of the module and of its classes, with the name of the class."""
        self.nodes: dict[str, ast.stmt] = {}
        """The statement that defined or assigned each qualified name."""
        self.loaded = loaded if file is None else {}
        if file is not None:
            self._read(file.tree.body, "")
        self.created = _created.setdefault(file.filename, {}) if file is not None else {}
        """The definitions with which classes were created, by qualified name, as far as they are known."""
        for name, node in self.nodes.items():
            if isinstance(node, ast.ClassDef):
                self.created.setdefault(name, node)

    def has(self, statement: ast.stmt, within: str = "") -> bool:
        """Return whether a statement was in the file, at the top level of the module or of a class."""
        return (within, ast.dump(statement)) in self._statements

    @classmethod
    def find(cls, filename: str, pushed: str | None, functions: Iterable[FunctionType], cached: str = "") -> OldFile:
        """Return the content of the file that these functions come from: what was last pushed, or what is on disk.

        Args:
            filename: As in the code objects.
            pushed: The text that was last pushed; None if none was pushed.
            functions: All functions from the file in this process.
            cached: Its cached bytecode; "" if there is none.
        """
        loaded = {**cached_constants(cached), **running_constants(filename)}
        try:
            if pushed is None and _changed_at(filename) > start_time():
                return cls(None, loaded)
            source = Path(filename).read_text(encoding="utf-8") if pushed is None else pushed
            file = NewFile(source, filename)
        except (OSError, SyntaxError, ValueError):
            return cls(None, loaded)
        codes = [new.code for found in file.functions.values() for new in found]
        alike = [any(is_equivalent(each.__code__, code) for code in codes) for each in functions]
        return cls(file if 2 * sum(alike) >= len(alike) else None, loaded)

    def _read(self, body: list[ast.stmt], within: str) -> None:
        for node in body:
            self._statements.add((within.rstrip("."), ast.dump(node)))
            for name in bound_names(node):
                self.nodes[within + name] = node
            if isinstance(node, ast.ClassDef):
                self._read(node.body, f"{within}{node.name}.")


def _changed_at(filename: str) -> float:
    """Return when a file was written or replaced; `cp -p` and `mv` set only the second of these times."""
    status = os.stat(filename)  # noqa: PTH116 - as the paths of modules
    return max(status.st_mtime, status.st_ctime)

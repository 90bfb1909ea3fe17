"""An in-place change to one function: its code, defaults and docstring."""

from __future__ import annotations

import ast
import warnings
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from relay_agent.push.new_file import NewFunction, constant

__all__ = ["Change", "change_of", "has_same_lines", "is_equivalent", "pair"]


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
        return {id(code): found for code, found in zip(sorted(old, key=_line), new, strict=True)}
    paired = {}
    for code in old:
        alike = [found for found in new if _signature(found.code) == _signature(code)]
        if len(alike) == 1:
            paired[id(code)] = alike[0]
    return paired


def is_equivalent(one: object, other: object) -> bool:
    """Return whether two code objects do the same thing, regardless of their line numbers."""
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
    inner = zip(one.co_consts, other.co_consts, strict=True)
    return [*one.co_lines()] == [*other.co_lines()] and all(
        has_same_lines(a, b) for a, b in inner if isinstance(a, CodeType) and isinstance(b, CodeType)
    )


def _line(code: CodeType) -> int:
    return code.co_firstlineno


def _signature(code: CodeType) -> tuple[object, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], code.co_freevars

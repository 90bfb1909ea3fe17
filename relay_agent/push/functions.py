"""The change of one function in place: code, defaults and docstring."""

from __future__ import annotations

import ast
import warnings
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from relay_agent.push.new_file import NewFunction, constant

__all__ = ["Change", "change_of", "is_equivalent", "pair"]


class Change(NamedTuple):
    """What a function receives."""

    function: FunctionType
    code: CodeType
    defaults: tuple[Any, ...] | None
    keyword_defaults: dict[str, Any] | None
    doc: str | None

    def apply(self) -> None:
        """Change the function."""
        function: Any = self.function
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the code may be that of a coroutine now
            function.__code__ = self.code
        function.__defaults__ = self.defaults
        function.__kwdefaults__ = self.keyword_defaults
        function.__doc__ = self.doc


def change_of(function: FunctionType, new: NewFunction, names: dict[str, Any]) -> Change:
    """Return what a function receives.

    A default that is an immutable literal is taken from the file. Any other one keeps the object that the function has
    for this parameter, because that may be state, and is computed only for a new parameter.

    Args:
        function: A function of this process.
        new: Its new definition.
        names: The local names at the definition, those of a class.

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
    """Return the new function of each old code object, by the id of that, for functions of the same name.

    Functions that nothing distinguishes are left out.
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
    """Return whether two code objects do the same, in whatever lines."""
    if not (isinstance(one, CodeType) and isinstance(other, CodeType)):
        return type(one) is type(other) and repr(one) == repr(other)
    alike = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags", "co_argcount")
    return (
        all(getattr(one, name) == getattr(other, name) for name in (*alike, "co_kwonlyargcount", "co_posonlyargcount"))
        and len(one.co_consts) == len(other.co_consts)
        and all(map(is_equivalent, one.co_consts, other.co_consts))
    )


def _line(code: CodeType) -> int:
    return code.co_firstlineno


def _signature(code: CodeType) -> tuple[object, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], code.co_freevars

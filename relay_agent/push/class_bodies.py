"""Which statements in a class body are not plain assignments, because something else than `type` interprets them.

A class statement passes its body to the metaclass, then to `__init_subclass__` of a base class, and then to the
decorators. An assignment that one of these has interpreted, such as a member of an Enum or a field of a dataclass, of a
pydantic model or of a `ctypes.Structure`, has effects that setting the attribute of the class does not have.

    interpreted by              members
    `type` and `abc.ABCMeta`    `__slots__`
    a decorator, `NamedTuple`,  `__slots__` and annotated names, except class variables
    `__init_subclass__`
    any other metaclass         all names, except methods of an ordinary kind
    a decorator that has        all names, except methods of an ordinary kind
    returned no class
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from relay_agent.push.new_file import assigned_constant, bound_names

__all__ = ["ClassBody", "listed"]

MAX_LISTED = 10

_HOOKS = ("__prepare__", "__new__", "__init__", "__setattr__")
"""The methods with which a metaclass interprets a class body, or the assignment to an attribute of a class."""
_PLAIN = {("builtins", "type"), ("abc", "ABCMeta"), ("typing", "_ProtocolMeta"), ("typing_extensions", "_ProtocolMeta")}
"""Metaclasses that leave all attributes as they are assigned."""
_DECORATORS = {"classmethod", "property", "staticmethod"}


class ClassBody:
    """The body of a class statement.

    Args:
        cls: The class in this process; None if its name is bound to something else, which a decorator has returned.
        node: Its new definition.
        created: The definition with which it was created; None if unknown.
        is_inside_members: Whether the class belongs to the body of a class whose names are all interpreted.
    """

    def __init__(
        self, cls: type | None, node: ast.ClassDef, created: ast.ClassDef | None, *, is_inside_members: bool = False
    ) -> None:
        self._node, self._created = node, created
        self.is_interpreted = is_inside_members or cls is None or not _is_plain(type(cls))
        """Whether all names are members."""
        self._is_named_tuple = cls is not None and issubclass(cls, tuple) and "_fields" in vars(cls)
        is_decorated = any(each.decorator_list for each in (node, created) if each is not None)
        self._has_fields = is_decorated or self._is_named_tuple or (cls is not None and _is_initialized(cls))

    def __repr__(self) -> str:
        return f"<ClassBody {self._node.name} {'interpreted' if self.is_interpreted else 'plain'}>"

    def is_member(self, statement: ast.stmt) -> bool:
        """Return whether a statement has effects that setting an attribute of the class does not have."""
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return self.is_interpreted and not _is_ordinary(statement)
        if self.is_interpreted:
            return isinstance(statement, ast.Assign | ast.AnnAssign | ast.ClassDef)
        if self._has_fields and isinstance(statement, ast.AnnAssign):
            return self._is_named_tuple or not _is_class_variable(statement.annotation)
        return "__slots__" in bound_names(statement)

    @property
    def has_members(self) -> bool:
        """Whether the new definition has members."""
        return any(map(self.is_member, self._node.body))

    def remark(self, name: str, is_replaced: Callable[[str], bool]) -> list[str]:
        """Return the sentence about what changes in the file and not in the class; [] if there is nothing, or unknown.

        Args:
            name: The qualified name of the class.
            is_replaced: Returns whether a method or a nested class receives its new code in place.
        """
        if self._created is None:
            return []
        headers = [
            [ast.dump(part) for part in (*node.bases, *node.keywords, *node.decorator_list)]
            for node in (self._created, self._node)
        ]
        members = listed([each for each in self._changed_members(self._created) if not is_replaced(each)])
        if headers[0] != headers[1]:
            what = f"base classes, metaclass and decorators{f', and the members {members},' if members else ''}"
            return [f"class {name} keeps its layout: {what} cannot be changed in a running process"]
        what = f"{members} cannot be added, changed or removed in a running process"
        return [f"class {name} keeps its members: {what}"] if members else []

    def removed_constants(self, old: ast.stmt | None) -> set[str]:
        """Return the names that only the old definition binds to an immutable literal or a class, except members."""
        names = {name for each in self._node.body for name in bound_names(each)}
        before = [each for each in old.body if not self.is_member(each)] if isinstance(old, ast.ClassDef) else []
        constants = [each for each in before if isinstance(each, ast.ClassDef) or assigned_constant(each)]
        return {name for each in constants for name in bound_names(each)} - names

    def _changed_members(self, before: ast.ClassDef) -> list[str]:
        """Return the names of members that are new or removed, or have another definition or order."""
        old, new = self._members(before), self._members(self._node)
        common = ([name for name in one if name in other] for one, other in ((old, new), (new, old)))
        moved = {name for name, other in zip(*common, strict=True) if name != other}
        return [name for name in {**old, **new} if name in moved or old.get(name) != new.get(name)]

    def _members(self, node: ast.ClassDef) -> dict[str, list[str]]:
        members: dict[str, list[str]] = {}
        for each in filter(self.is_member, node.body):
            for name in bound_names(each):
                members.setdefault(name, []).append(ast.dump(each))
        return members


def _is_plain(metaclass: type) -> bool:
    """Return whether a metaclass inherits everything that interprets a class body from a plain metaclass."""
    owners = [next(each for each in metaclass.__mro__ if hook in vars(each)) for hook in _HOOKS]
    return all((owner.__module__, owner.__qualname__) in _PLAIN for owner in owners)


def _is_initialized(cls: type) -> bool:
    """Return whether a base class, except those of `typing`, has an `__init_subclass__`; it may read annotations."""
    owner = next(each for each in cls.__mro__[1:] if "__init_subclass__" in vars(each))
    return owner.__module__ not in {"builtins", "typing", "typing_extensions"}


def _is_ordinary(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a method has no name and no decorator that could mean something to a metaclass."""
    names = {each.id if isinstance(each, ast.Name) else "" for each in method.decorator_list}
    return not method.name.endswith("_") and names <= _DECORATORS


def _is_class_variable(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).strip("'\"").partition("[")[0].rpartition(".")[2] == "ClassVar"


def listed(names: list[str]) -> str:
    """Return names for a sentence: the first `MAX_LISTED`, and how many more there are."""
    more = [f"{len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
    return ", ".join([*names[:MAX_LISTED], *more])

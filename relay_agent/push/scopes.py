"""The names in a module and its classes: new names are added, and existing ones keep values assigned by the job.

Why two phases: imports and decorators are the job's code, which may raise an exception or take long, and all ranks must
change at the same step or not at all. `prepare` does all of this while each rank may still refuse; `commit` consists of
assignments only. New names are bound by `prepare` already, since later definitions may need them; nothing in the old
code refers to them, and `undo` removes them.

What is ugly: the value in the process does not show whether the job has assigned it or the file. So a constant is
compared with the file that was loaded, and if that is unknown, names that functions assign are taken for state.
"""

from __future__ import annotations

import ast
import dis
import functools
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from relay_agent.push.loaded_code import module_frames, place_of, steps_ahead
from relay_agent.push.new_file import Definition, NewFile, assigned_constant, bound_names, qualified_codes
from relay_agent.push.old_file import OldFile, is_equivalent
from relay_core.agent_api.push import listed
from relay_core.errors import ConfigurationError
from relay_core.grouping import by_key

# Which statements in a class body are not plain assignments, because something else than `type` interprets them.
#
# A class statement passes its body to the metaclass, then to `__init_subclass__` of a base class, and then to the
# decorators. An assignment that one of these has interpreted, such as a member of an Enum or a field of a dataclass, of
# a pydantic model or of a `ctypes.Structure`, has effects that setting the attribute of the class does not have.
#
#     interpreted by              members
#     `type` and `abc.ABCMeta`    `__slots__`
#     a decorator, `NamedTuple`,  `__slots__` and annotated names, except class variables
#     `__init_subclass__`
#     any other metaclass         all names, except methods of an ordinary kind
#     a decorator that has        all names, except methods of an ordinary kind
#     returned no class

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
        self.has_members = any(map(self.is_member, node.body))
        """Whether the new definition has members."""

    def is_member(self, statement: ast.stmt) -> bool:
        """Return whether a statement has effects that setting an attribute of the class does not have."""
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return self.is_interpreted and not _is_ordinary(statement)
        if self.is_interpreted:
            return isinstance(statement, ast.Assign | ast.AnnAssign | ast.ClassDef)
        if self._has_fields and isinstance(statement, ast.AnnAssign):
            return self._is_named_tuple or not _is_class_variable(statement.annotation)
        return "__slots__" in bound_names(statement)

    def missing(self, attributes: Mapping[str, object]) -> set[str]:
        """Return the names that the class or its instances would have if the new definition had created it.

        Args:
            attributes: What the class has. Its other fields and members are keys of its dicts.
        """
        inner = {name for each in attributes.values() if type(each) is dict for name in each}
        return self._provided(self._node) - self._provided(self._created) - {*attributes} - inner

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
        members = filter(self.is_member, node.body)
        return by_key((name, ast.dump(each)) for each in members for name in bound_names(each))

    def _provided(self, node: ast.ClassDef | None) -> set[str]:
        """Return the names of the members in a definition, and of its slots."""
        members = [] if node is None else [*filter(self.is_member, node.body)]
        slots = [each for each in members if "__slots__" in bound_names(each)]
        constants = {each.value for slot in slots for each in ast.walk(slot) if isinstance(each, ast.Constant)}
        return {name for each in members for name in bound_names(each)} | {*map(str, constants)}


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


CAPTURE = "__relay_debug_class__"
"""A global name that exists only while a class body is executed to obtain new attributes."""
MAX_STATEMENT = 60
Report = Callable[[Iterable[str]], None]
_unset: dict[tuple[str, str], dict[str, tuple[bool, tuple[object] | None] | None]] = {}
"""By file and module: constants that the last push of the file has not set, with what was known about them before it:
whether the content of the file was known, and the value that it assigned."""


class Scope:
    """One module and its classes.

    Args:
        module: The module.
        new: The new content of its file.
        old: What its file contained.
        live: The functions of the file in this process, by qualified name.
        changed: Called with descriptions of what will change.
        kept: Called with descriptions of what will stay as it is.
    """

    def __init__(
        self,
        module: ModuleType,
        new: NewFile,
        old: OldFile,
        live: dict[str, list[FunctionType]],
        *,
        changed: Report,
        kept: Report,
    ) -> None:
        self._names = vars(module)
        self._module = module.__name__
        self._new, self._old, self._live = new, old, live
        self._changed, self._kept = changed, kept
        self._added: list[str] = []
        """New names, bound by `prepare`."""
        self._steps: list[Callable[[], None]] = []
        """What remains for `commit`; none of it calls the job's code."""
        self.rebound: set[str] = set()
        """The names, without those of their classes, to which `commit` binds another value."""
        self.missing: set[str] = set()
        """The qualified names that the new file defines and that stay undefined in this process."""
        self._uncompared: list[str] = []
        """Names whose values are not compared, because the file that the process loaded is unknown."""
        self._unset = _unset.setdefault((new.filename, module.__name__), {})
        self._assigned = {name for found in live.values() for each in found for name in _globals_set(each)}
        """Global names that functions in the file assign: these are state, and differ between ranks."""
        self.ahead: set[str] = set()
        """Names that the module does not have yet, and that its running top level will define."""
        for frame in module_frames(new.filename):
            self._check_ahead(frame)

    def _check_ahead(self, frame: FrameType) -> None:
        """Refuse the push if the running top level of the module may still execute an old definition.

        It would replace the new one, and this rank would then execute other code than the others. A definition that has
        not changed is left to the top level, so that decorators and imports are executed once, and in their order.
        """
        code, steps = frame.f_code, steps_ahead(frame)
        lines = {offset: line or 0 for start, stop, line in code.co_lines() for offset in range(start, stop, 2)}
        stored = {each.argval: lines[each.offset] for each in steps if each.opname in {"STORE_NAME", "STORE_GLOBAL"}}
        loaded = code.replace(co_consts=tuple(each.argval for each in steps if isinstance(each.argval, CodeType)))
        outdated = {}
        for name, found in qualified_codes(loaded):
            new = self._new.functions.get(name)
            if new and not any(is_equivalent(found, each.code) for each in new):
                outdated[found.co_firstlineno] = name
        for node in self._new.tree.body:
            names = {*bound_names(node)} & stored.keys()
            if not self._may_differ(node):
                self.ahead |= names - self._names.keys() if frame.f_globals is self._names else set()
            elif isinstance(node, Definition | ast.Import | ast.ImportFrom) or assigned_constant(node):
                outdated |= {stored[name]: name for name in names if self._is_ahead(name, stored[name], frame)}
        if outdated:
            line = max(outdated)
            raise ConfigurationError(
                f"the top level of the file, now at {place_of(frame)}, may still execute the old definition of "
                f"{outdated[line]} in line {line}",
                hint=f"push again once it is past line {line} and any loop around it, or restart the job",
            )

    def _is_ahead(self, name: str, line: int, frame: FrameType) -> bool:
        """Return whether the next assignment to a name is its definition, not one in a loop or branch."""
        old = self._old.nodes.get(name)
        return name not in frame.f_globals or (old is not None and old.lineno == line)

    def _may_differ(self, node: ast.stmt) -> bool:
        """Return whether a statement may not have been in the file; if the file is unknown, only for some kinds.

        Functions are then compared by their code, and changed imports are not noticed.
        """
        if self._old.is_known:
            return not self._old.has(node)
        if (assigned := assigned_constant(node)) is None:
            return isinstance(node, ast.ClassDef)
        return not is_equivalent(self._old.loaded.get(assigned[0]), assigned[1])

    def prepare(self) -> None:
        """Execute changed imports and the definitions of new names."""
        last = {name: node for node in self._new.tree.body for name in bound_names(node)}
        for node in self._new.tree.body:
            is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            if is_future or not self.ahead.isdisjoint(bound_names(node)):
                continue
            if isinstance(node, ast.ClassDef) and (found := self._class(self._names.get(node.name), node.name)):
                self._prepare_class(found, node, node.name)
            elif isinstance(node, Definition | ast.Import | ast.ImportFrom):
                self._prepare_statement(node)
            elif (assigned := assigned_constant(node)) is not None and last[assigned[0]] is node:
                self._prepare_constant(self._names, self._names.__setitem__, "", *assigned)
            else:
                self._report_other(node, self._names)
        self._kept(self._removed())
        if not self._old.is_known:
            values = f", and the values of {listed(self._uncompared)}" if self._uncompared else ""
            why = "the file on the node may have changed since the process loaded it"
            self._kept([f"{why}: decorators, base classes and existing imports{values} were not compared"])

    def undo(self) -> None:
        """Remove the names that `prepare` has bound."""
        for name in self._added:
            self._names.pop(name, None)
        self._added.clear()
        self._steps.clear()

    def commit(self) -> None:
        """Bind all other names."""
        for step in self._steps:
            step()

    def _prepare_statement(self, node: ast.stmt) -> None:
        names = bound_names(node)
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if not is_import and names[0] in self._names and self._live.get(names[0]):
            self._check_decorators(node, names[0])
            return
        if isinstance(node, ast.ClassDef) and self._is_other(node, self._names, node.name):
            return
        missing = [name for name in names if name not in self._names]
        if is_import and not missing and (not self._old.is_known or self._old.has(node)):
            return
        if "*" in names:
            self._report_other(node, self._names)
            return
        found: dict[str, object] = {}
        self._new.run([node], self._names, found)
        for name, value in found.items():
            if name not in self._names:
                self._add(name, value)
            elif self._names[name] is not value:
                self._steps.append(functools.partial(self._names.__setitem__, name, value))
                self.rebound.add(name)
        self._changed(f"{_title(node)} (new)" if name in missing else _title(node) for name in found)

    def _add(self, name: str, value: object) -> None:
        self._added.append(name)
        self._names[name] = value

    def _prepare_constant(
        self, names: Any, assign: Callable[[str, object], None], within: str, name: str, value: object
    ) -> None:
        if name not in names:
            self._changed([f"{within}{name} = {_shown(value)}"])
            if within:
                self._steps.append(lambda: assign(name, value))
            else:  # definitions below may need it
                self._add(name, value)
            return
        assigned = assigned_constant(self._old.nodes.get(within + name))
        loaded = self._old.loaded
        before = assigned[1:] if assigned else (loaded[within + name],) if within + name in loaded else None
        known = self._unset.get(within + name) or (self._old.is_known, before)
        is_known, before = known
        present = names[name]
        is_same = is_equivalent(present, value)
        is_set = before is not None and is_equivalent(before[0], present)
        is_unset = not is_set and not is_same  # the text of this push is not what the process has then
        self._steps.append(functools.partial(self._unset.update, {within + name: known if is_unset else None}))
        if is_same:
            return
        if is_set:
            self._changed([f"{within}{name} = {_shown(value)}"])
            self._steps.append(lambda: assign(name, value))
            self.rebound.add(name)
        elif not is_known and (within or name not in self._assigned):
            self._kept([f"{within}{name} keeps {_shown_state(present)}; the file has {_shown(value)}"])
        elif not is_known or before is None or not is_equivalent(before[0], value):
            self._kept([f"{within}{name} keeps the value assigned by the process; the file has {_shown(value)}"])

    def _prepare_class(self, cls: type, node: ast.ClassDef, name: str, *, is_inside_members: bool = False) -> None:
        body = ClassBody(cls, node, self._old.created.get(name), is_inside_members=is_inside_members)
        self._check_class(cls, body, name)
        functions = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        new: list[ast.stmt] = []
        last = {name: each for each in node.body for name in bound_names(each)}
        for each in node.body:
            if isinstance(each, ast.ClassDef) and (
                inner := self._class(vars(cls).get(each.name), f"{name}.{each.name}")
            ):
                self._prepare_class(inner, each, f"{name}.{each.name}", is_inside_members=body.is_interpreted)
            elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                live = self._live.get(f"{name}.{each.name}", [])
                is_missing = each.name not in vars(cls)  # a method from a failed push may still be in memory
                if is_missing or self._is_new_method(live, functions.count(each.name), f"{name}.{each.name}"):
                    new += [] if body.is_member(each) else [each]
                else:
                    self._check_decorators(each, f"{name}.{each.name}")
            elif isinstance(each, ast.ClassDef):
                new += [] if body.is_member(each) or self._is_other(each, vars(cls), f"{name}.{each.name}") else [each]
            elif body.is_member(each):
                continue
            elif (assigned := assigned_constant(each)) is not None and last[assigned[0]] is each:
                self._prepare_constant(vars(cls), functools.partial(type.__setattr__, cls), f"{name}.", *assigned)
            elif not isinstance(each, ast.AnnAssign) or each.value is not None:
                self._report_other(each, vars(cls), f"{name}.")
        if new:
            self._prepare_attributes(cls, new, name)

    def _is_new_method(self, live: list[FunctionType], number: int, name: str) -> bool:
        """Return whether a method gets a new function: it is a new method, or it needs another `__class__` cell."""
        codes = {id(function.__code__): function.__code__ for function in live}
        if len(codes) < number:
            return True
        free = {found.code.co_freevars for found in self._new.functions.get(name, [])}
        return not free <= {code.co_freevars for code in codes.values()}

    def _prepare_attributes(self, cls: type, body: list[ast.stmt], name: str) -> None:
        """Execute part of a class body, and keep what it defines for `commit`."""
        captured: list[dict[str, Any]] = []

        def capture(_name: str, _bases: tuple[type, ...], namespace: dict[str, Any]) -> dict[str, Any]:
            cell = namespace.pop("__classcell__", None)
            if cell is not None and not captured:
                cell.cell_contents = cls  # for `super()` and `__class__`
            captured.append(namespace)
            return namespace

        node: ast.stmt = _class_node(name.rpartition(".")[2], body)
        for outer in reversed(name.split(".")[:-1]):
            node = _class_node(outer, [node])
        self._names[CAPTURE] = capture
        try:
            self._new.run([node], self._names, {})
        finally:
            del self._names[CAPTURE]
        for attribute in dict.fromkeys(each for node in body for each in bound_names(node)):
            is_new = attribute not in vars(cls)
            self._changed([f"{name}.{attribute}(){' (new)' if is_new else ''}"])
            value = captured[0][attribute]  # the innermost class is executed first
            self._steps.append(functools.partial(_set_attribute, cls, attribute, value))

    def _class(self, value: object, name: str) -> type | None:
        """Return a class of this module that a definition changes in place; None if there is none."""
        is_own = isinstance(value, type) and (value.__module__, value.__qualname__) == (self._module, name)
        return value if is_own and isinstance(value, type) else None

    def _is_other(self, node: ast.ClassDef, names: Mapping[str, object], name: str) -> bool:
        """Return whether the name of a class is bound to what a decorator has returned for it, and report changes."""
        is_class = isinstance(self._old.nodes.get(name), ast.ClassDef)
        is_other = node.name in names and (is_class or bool(node.decorator_list))
        if is_other:
            self._check_class(None, ClassBody(None, node, self._old.created.get(name)), name)
        return is_other

    def _check_class(self, cls: type | None, body: ClassBody, name: str) -> None:
        """Report what cannot be changed in a class."""
        attributes = {} if cls is None else vars(cls)

        def is_replaced(inner: str) -> bool:
            return bool(self._live.get(f"{name}.{inner}") or self._class(attributes.get(inner), f"{name}.{inner}"))

        if not self._old.is_known and body.has_members:
            self._uncompared.append(f"class {name}")
        self._kept(body.remark(name, is_replaced))
        if cls is not None and not issubclass(cls, dict):  # whose instances accept any key, as of a TypedDict
            self.missing |= {f"{name}.{each}" for each in body.missing(attributes)}
        self._kept(
            _gone_text(f"{name}.{each}")
            for each in sorted(body.removed_constants(self._old.nodes.get(name)) & {*attributes})
        )

    def _check_decorators(self, node: ast.stmt, name: str) -> None:
        old = self._old.nodes.get(name)
        if (
            isinstance(node, Definition)
            and isinstance(old, Definition)
            and [*map(ast.dump, node.decorator_list)] != [*map(ast.dump, old.decorator_list)]
        ):
            self._kept([f"{name}() keeps its old decorators: decorators are not executed again"])

    def _report_other(self, node: ast.stmt, names: Mapping[str, object], within: str = "") -> None:
        """Report a statement that is not executed, if it is new."""
        statements = [each for each in ast.walk(node) if isinstance(each, ast.stmt)]
        self.missing |= {within + name for each in statements for name in bound_names(each) if name not in names}
        if not self._old.is_known and isinstance(node, ast.Assign | ast.AnnAssign):
            self._uncompared += [within + name for name in bound_names(node)]
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_same = self._old.has(node, within.rstrip(".")) or not self._old.is_known
        if not is_docstring and not isinstance(node, ast.Pass) and not is_same:
            text = ast.unparse(node).partition("\n")[0]
            shown = text if len(text) <= MAX_STATEMENT else f"{text[: MAX_STATEMENT - 3]}..."
            self._kept([f"line {node.lineno} is not executed again: {shown}"])

    def _removed(self) -> list[str]:
        names = {name for node in self._new.tree.body for name in bound_names(node)}
        gone = sorted(
            name
            for name in self._old.nodes.keys() - names
            if "." not in name and name in self._names and not self._live.get(name)
        )
        return [_gone_text(name) for name in gone]


def _title(node: ast.stmt) -> str:
    """Return what a statement is called in a list of changes."""
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    return f"{node.name}()" if isinstance(node, Definition) else ast.unparse(node)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_STATEMENT else f"{text[: MAX_STATEMENT - 3]}..."


def _globals_set(function: FunctionType) -> set[str]:
    """Return the global names that a function assigns."""
    return {each.argval for each in dis.get_instructions(function.__code__) if each.opname == "STORE_GLOBAL"}


def _shown_state(value: object) -> str:
    """Return the value of a plain object; any other `repr` may run the job's code, which may wait for a GPU."""
    is_plain = isinstance(value, int | float | complex | str | bytes | None) and type(value).__module__ == "builtins"
    return _shown(value) if is_plain else f"an object of type {type(value).__name__}"


def _gone_text(name: str) -> str:
    return f"{name} was removed from the file, but remains in the process"


def _class_node(name: str, body: list[ast.stmt]) -> ast.ClassDef:
    keyword = ast.keyword("metaclass", ast.Name(CAPTURE, ast.Load()))
    node = ast.parse(f"class {name}: pass").body[0]
    assert isinstance(node, ast.ClassDef)  # noqa: S101 - as parsed
    node.keywords, node.body = [keyword], body
    return ast.fix_missing_locations(ast.copy_location(node, body[0]))


def _set_attribute(cls: type, name: str, value: object) -> None:
    type.__setattr__(cls, name, value)
    bind_name = getattr(type(value), "__set_name__", None)
    if bind_name is not None:
        bind_name(value, cls, name)

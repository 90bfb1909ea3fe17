"""Replaces the code of a file in this process: first does everything that may fail, and then swaps all code at once.

Functions and methods receive new code in place, wherever they are referenced from. Names of the module and attributes
of its classes keep their values; new ones are added. No other statement of a module is executed.

Why not `xreload` of pydevd or `importlib.reload`: a reload executes the module, and with it everything that a training
script does at import; pydevd's leaves closures and running frames on old code without naming them. Here, `__code__` is
replaced in functions that exist, so that callers and instances need not be found, and what keeps its old code is
listed. All that can raise (definitions of new names, defaults) is done before running code changes, because a job with
half of a change in it is worse than one without.

What is ugly and stays: the call that is being executed keeps its old code until it returns, because CPython cannot
replace the code of a frame; and a function whose free variables change cannot be replaced in place at all.
"""

from __future__ import annotations

import builtins
import dis
import gc
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import WeakValueDictionary

from relay_agent.job.stderr import describe_exception
from relay_agent.push.loaded_code import functions_beside_users, functions_of, running_codes
from relay_agent.push.new_file import NewFile, NewFunction
from relay_agent.push.old_file import Change, OldFile, change_of, has_same_lines, is_equivalent, pair
from relay_agent.push.scopes import Scope
from relay_core.errors import ConfigurationError

_replaced: WeakValueDictionary[tuple[str, int], CodeType] = WeakValueDictionary()
"""Code that pushes have replaced, by qualified name and id; Python keeps it as long as a call is executing it."""


def replaced_codes(names: Collection[str]) -> dict[int, str]:
    """Return the names of functions, by the id of their code that earlier pushes have replaced and a call executes."""
    return {number: name for name, number in list(_replaced) if name in names}


class Swap:
    """A push in this process.

    Args:
        modules: The modules that were loaded from the file.
        new: The new content of the file.
        old: What is known about the content that is running.
    """

    def __init__(self, modules: list[ModuleType], new: NewFile, old: OldFile) -> None:
        self._modules = modules
        self.new = new
        self.changed: list[str] = []
        self.kept: list[str] = []
        self._lines_move = False
        live = functions_of(new.filename)
        self._before = {name: _codes(functions) for name, functions in live.items()}
        self._functions = self._changed_functions(live)
        self._scopes = [Scope(module, new, old, live, changed=self._added, kept=self._kept_as_is) for module in modules]
        self._kept_as_is(_removed(live, new))

    @property
    def functions(self) -> dict[int, str]:
        """The names of the functions at whose calls the code can be swapped, by the id of their current code.

        These are the functions whose code changes. If only constants change, they are the functions of all files that
        use these constants.
        """
        if self._functions:
            return {id(code): name for name, code in self._functions}
        names = {name for scope in self._scopes for name in scope.rebound}
        return functions_beside_users(names) if names else {}

    @property
    def is_empty(self) -> bool:
        """Whether the process already executes the code in the file, on the same lines."""
        return not self.changed and not self._lines_move

    def prepare(self) -> None:
        """Execute the definitions of new names, which the running code does not use yet.

        Raises:
            ConfigurationError: a function would use a name that stays undefined.
            Exception: anything that a definition raises. In both cases, nothing has been changed.
        """
        try:
            for scope, module in zip(self._scopes, self._modules, strict=True):
                scope.prepare()
                self._check_uses(scope.missing, scope.ahead.union(vars(module)))
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Remove the new names and free their values, which the next push would otherwise find as running code."""
        for scope in self._scopes:
            scope.undo()
        gc.collect()

    def commit(self, threads: Mapping[int | None, str], held: FrameType | None = None) -> None:
        """Swap the code; this takes no lock that the main thread may be holding.

        Args:
            threads: The names of the threads by their idents.
            held: The frame in which the main thread is held, at the first line of a function that changes.
        """
        live = functions_of(self.new.filename)
        changes = self._changes(live)
        for name, functions in live.items():
            _replaced.update({(name, id(code)): code for code in _codes(functions)})
        for scope in self._scopes:
            scope.commit()
        for change in changes:
            change.apply()
        outdated = [(name, code) for (name, _), code in _replaced.items() if self._is_outdated(name, code)]
        names = {id(code): name for name, code in outdated}
        for number, where in running_codes([code for _, code in outdated], threads, held):
            self._kept_as_is([f"{names[number]}() {where}: this call executes the old code until it returns"])

    def _is_outdated(self, name: str, code: CodeType) -> bool:
        """Return whether a function that is in the file has other code there."""
        new = self.new.functions.get(name, []) if code.co_filename == self.new.filename else []
        return bool(new) and not any(is_equivalent(code, each.code) for each in new)

    def _check_uses(self, missing: set[str], present: set[str]) -> None:
        names = {name if "." not in name else f".{name.rpartition('.')[2]}": name for name in sorted(missing)}
        every = [(name, {*_used(new.code)}) for name, found in self.new.functions.items() for new in found]
        present = present.union(vars(builtins), (name[1:] for _, used in every for name in used if name[0] == "="))
        for function, used in every:
            if "<" in function or function.partition(".")[0] not in present:
                continue
            undefined = {name for name in used - present if name[0] not in ".="}
            before = {name for code in self._before.get(function, []) for name in _used(code)}
            for name in sorted((undefined | names.keys() & used) - before):
                why = "cannot be added to a running process" if name in names else "would stay undefined"
                raise ConfigurationError(
                    f"{function}() uses {names.get(name, name)}, which {why}",
                    hint="push the file without this use, or restart the job",
                )

    def _changed_functions(self, live: dict[str, list[FunctionType]]) -> list[tuple[str, CodeType]]:
        found = []
        for name, functions in live.items():
            codes = _codes(functions)
            pairs = pair(codes, self.new.functions.get(name, []))
            changed = [code for code in codes if id(code) in pairs and not is_equivalent(code, pairs[id(code)].code)]
            if changed:
                self._added([f"{name}()"])
            elif not all(id(code) in pairs and has_same_lines(code, pairs[id(code)].code) for code in codes):
                self._lines_move = self._lines_move or name in self.new.functions
            found += [(name, code) for code in changed]
        return found

    def _changes(self, live: dict[str, list[FunctionType]]) -> list[Change]:
        changes = []
        for name, functions in live.items():
            new = self.new.functions.get(name, [])
            pairs = pair(_codes(functions), new)
            for function in functions:
                target = pairs.get(id(function.__code__))
                if target is None:
                    self._kept_as_is([f"{name}() keeps its old code: several functions have this name"] if new else [])
                else:
                    changes += self._change(name, function, target)
        return changes

    def _change(self, name: str, function: FunctionType, target: NewFunction) -> list[Change]:
        before, after = function.__code__.co_freevars, target.code.co_freevars
        if before != after:
            if {*before} ^ {*after} != {"__class__"}:
                self._kept_as_is([_closure_text(name, before, after)])
            return []  # with another `__class__` cell, the class receives a new function
        owner = self._owner(function, name)
        try:
            return [change_of(function, target, owner)]
        except Exception as error:  # noqa: BLE001 - a default may raise anything
            self._kept_as_is(
                [f"{name}() keeps its old code: a default value cannot be computed: {describe_exception(error)}"]
            )
            return []

    def _owner(self, function: FunctionType, name: str) -> dict[str, Any]:
        """Return the names of the class that contains a method."""
        found: Any = None
        for index, part in enumerate(name.split(".")[:-1]):
            found = function.__globals__.get(part) if index == 0 else getattr(found, part, None)
        return dict(vars(found)) if isinstance(found, type) else {}

    def _added(self, texts: Iterable[str]) -> None:
        self.changed += [text for text in texts if text not in self.changed]

    def _kept_as_is(self, texts: Iterable[str]) -> None:
        self.kept += [text for text in texts if text not in self.kept]


def _codes(functions: list[FunctionType]) -> list[CodeType]:
    return list({id(function.__code__): function.__code__ for function in functions}.values())


def _used(code: CodeType) -> Iterator[str]:
    """Return the names that a function uses.

    In front of an attribute or a keyword argument is a dot; of a global name that the function assigns, an equals sign.
    """
    for each in dis.get_instructions(code):
        if each.opcode in dis.hasname:
            yield {"LOAD_GLOBAL": "", "STORE_GLOBAL": "="}.get(each.opname, ".") + each.argval
    for constant in code.co_consts:
        if isinstance(constant, tuple):
            yield from (f".{each}" for each in constant if isinstance(each, str))
        elif isinstance(constant, CodeType) and constant.co_name != "__annotate__":
            yield from _used(constant)


def _removed(live: dict[str, list[FunctionType]], new: NewFile) -> list[str]:
    names = sorted(name for name in live if name not in new.functions and "<" not in name and not name.startswith("?"))
    return [f"{name}() was removed from the file, but remains in the process" for name in names]


def _closure_text(name: str, before: tuple[str, ...], after: tuple[str, ...]) -> str:
    names = [", ".join(names) or "none" for names in (after, before)]
    return (
        f"{name}() is now a closure over different outer variables ({names[0]} instead of {names[1]}): existing "
        "closures keep the old code"
    )

"""Finds breakpoints in functions that torch.compile has compiled: the code that is executed instead has no such lines.

torch.compile has a list of the code objects that it has compiled. The functions that these call are compiled as parts
of them. No list has the parts, but the guards do, the conditions under which compiled code may be executed: they
contain the ids of the code objects of functions, and of the types of modules, of which `forward` and the methods that
it calls are parts. An alternative was to examine each compilation as it happens, which must begin before torch is
imported and so would concern jobs that nobody debugs. The names are private to torch; where they are missing, nothing
is found.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

__all__ = ["CompiledWatch", "Place", "describe"]

FORWARD = "forward"
RESUMED = "torch_dynamo_resume_in_"
"""Prefix of the names of functions that torch generates from the rest of another one."""
UNCOMPILED = "force_eager"
"""The stance of torch.compiler in which the functions themselves are executed."""
_GUARD = re.compile(r"___check_(?:obj_id\(.*\.__code__|type_id\(.*), (\d+)\)")


class Place(NamedTuple):
    """Where a breakpoint is."""

    file: str
    line: int


class _Function(NamedTuple):
    code: CodeType
    owner: type | None = None
    """The class of which it is a method."""


class CompiledWatch:
    """Finds the compiled functions that contain breakpoints, anew whenever something has been compiled."""

    def __init__(self) -> None:
        self._state: object = None
        self._names: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"<CompiledWatch {sorted(set(self._names.values()))}>"

    def names(self, places: Mapping[int, Place]) -> dict[int, str]:
        """Return the names of the compiled functions that contain breakpoints, by the breakpoints' keys.

        No code of the job runs.
        """
        try:
            roots = [] if _is_uncompiled() else list(_roots())
            state = [(id(code), count) for code, count in roots], dict(places)
            if state != self._state:
                self._state, self._names = state, _find([code for code, _ in roots], places) if roots else {}
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError):  # another version of torch
            return {}
        return self._names


def _find(roots: list[CodeType], places: Mapping[int, Place]) -> dict[int, str]:
    compiled = {id(root) for root in roots} | _guarded()
    functions = [_Function(root) for root in roots]
    for file in {place.file for place in places.values()}:
        functions += (each for each in _functions_in(file) if _is_compiled(each, compiled))
    return {key: _name(found) for key, place in places.items() if (found := _at(place, functions)) is not None}


def describe(names: list[str]) -> str:
    """Return a line about functions in which breakpoints are not hit."""
    listed = ", ".join(names)
    what = f"{listed}, which torch.compile has compiled"
    if len(names) > 1:
        what = f"functions that torch.compile has compiled: {listed}"
    way = "start the job with TORCHDYNAMO_DISABLE=1"
    if hasattr(sys.modules.get("torch.compiler"), "set_stance"):
        call = f"torch.compiler.set_stance('{UNCOMPILED}')"
        way = f"run relay-client eval \"{call}\" to execute the uncompiled code ('default' ends this), or {way}"
    return f"breakpoints are not hit in {what}. hint: {way}"


def _is_uncompiled() -> bool:
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    return getattr(stance, "stance", "") == UNCOMPILED


def _roots() -> Iterator[tuple[CodeType, int]]:
    """Yield the code objects in place of which compiled code may be executed, with the number of its versions."""
    seen = getattr(getattr(sys.modules.get("torch._dynamo.convert_frame"), "input_codes", None), "seen", ())
    for code in [reference() for reference in list(seen)]:
        if code is not None and not code.co_name.startswith(RESUMED) and (count := _count_versions(code)):
            yield code, count


def _count_versions(code: CodeType) -> int:
    return len(sys.modules["torch._C._dynamo.eval_frame"]._debug_get_cache_entry_list(code))  # noqa: SLF001 - as above


def _guarded() -> set[int]:
    """Return the ids of code objects and types in all guards."""
    kind = sys.modules["torch._dynamo.guards"].GuardManagerWrapper
    # The compiled code has the guards, but a reference to it from here could outlive it.
    guards = [each for each in gc.get_objects() if type(each) is kind]
    return {int(match[1]) for each in guards for part in each.code_parts for match in _GUARD.finditer(part)}


def _functions_in(file: str) -> Iterator[_Function]:
    """Yield the functions and methods that the modules from a file contain."""
    for module in list(sys.modules.values()):
        if issubclass(type(module), ModuleType):
            names = ModuleType.__getattribute__(module, "__dict__")
            path = names.get("__file__")
            if type(path) is str and Path(path).name == Path(file).name and str(Path(path).resolve()) == file:
                yield from _functions_of(names, None, set())


def _functions_of(names: Mapping[str, Any], owner: type | None, seen: set[int]) -> Iterator[_Function]:
    for value in list(names.values()):
        function = value.__func__ if type(value) in {staticmethod, classmethod} else value
        while type(function) is FunctionType and id(function) not in seen:
            seen.add(id(function))
            yield _Function(function.__code__, owner)
            function = vars(function).get("__wrapped__")
        if issubclass(type(value), type) and id(value) not in seen:
            seen.add(id(value))
            yield from _functions_of(type.__getattribute__(value, "__dict__"), value, seen)


def _is_compiled(function: _Function, compiled: set[int]) -> bool:
    if id(function.code) in compiled:
        return True
    owner = function.owner
    if owner is None or sys.modules["torch"].nn.Module not in type.__getattribute__(owner, "__mro__"):
        return False
    return function.code.co_name in _part_names(owner) and any(id(each) in compiled for each in _with_subclasses(owner))


def _part_names(owner: type) -> set[str]:
    """Return the names of `forward` and of the methods that it and they call."""
    codes = {
        each.code.co_name: each.code for each in _functions_of(type.__getattribute__(owner, "__dict__"), owner, set())
    }
    found, pending = set[str](), [FORWARD]
    while pending:
        name = pending.pop()
        if name in codes and name not in found:
            found.add(name)
            pending += codes[name].co_names
    return found


def _with_subclasses(owner: type) -> Iterator[type]:
    yield owner
    subclasses: list[type] = type.__subclasses__(owner)
    for each in subclasses:
        yield from _with_subclasses(each)


def _at(place: Place, functions: list[_Function]) -> _Function | None:
    """Return the function that a breakpoint is in; the line of its `def` is not in it."""
    for function in functions:
        if _has_line(function.code, place.line, function.code.co_firstlineno) and _file(function.code) == place.file:
            return function
    return None


def _has_line(code: CodeType, line: int, start: int) -> bool:
    if any(found == line for _, _, found in code.co_lines() if found != start):
        return True
    return any(_has_line(each, line, start) for each in code.co_consts if isinstance(each, CodeType))


def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).resolve())


def _name(function: _Function) -> str:
    name = function.code.co_name if function.owner is None else f"{function.owner.__name__}.{function.code.co_name}"
    return str(getattr(function.code, "co_qualname", name))

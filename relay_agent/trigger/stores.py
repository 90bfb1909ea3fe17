"""Stops a thread when a variable, attribute or element has changed.

Python reports no stores. So the value is compared at each line of the functions that contain a store to such a name,
and before they return; and of the calls that are running when the breakpoint is set. The latter notice what no
instruction shows: `setattr`, `update`, a tensor that an optimizer changes in place. All other code keeps its speed.

A change is attributed to the line that was executed last in such a function, or in a call that this line has made.
"""

from __future__ import annotations

import dis
import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from types import CodeType, FrameType, MemberDescriptorType
from typing import Any, NamedTuple

from relay_agent.push.loaded_code import all_functions, original_of
from relay_agent.stacks.in_process import all_frames, with_callers
from relay_agent.stacks.local_names import keeper_of, local_names
from relay_agent.trigger.expression import Expression, failure
from relay_agent.trigger.places import RETURN, Hook, check_locals, every_place, with_inner
from relay_agent.values.presentation import short_repr
from relay_agent.values.secrets import HIDDEN, is_secret
from relay_agent.values.static_path import (
    class_entry,
    class_table,
    instance_table,
    module_tables,
    read_path,
)
from relay_core.agent_api.stacks import OWN, is_library
from relay_core.errors import ConfigurationError

MAX_FUNCTIONS = 500
"""Maximum number of functions in which a value is compared."""
MAX_TEXT = 80
"""Maximum number of characters of a value in a sentence."""
AT_LINE, AT_RETURN = 1, 2
_MISSING = object()
_SCALARS = (bool, int, float, complex, str, bytes)


class Stored(NamedTuple):
    """A variable, attribute or element."""

    name: str
    """The expression that has its value."""
    read: Callable[[], Any]
    """Returns the value, or raises an exception or returns `_MISSING` if there is none; executes no code of the job."""
    kinds: frozenset[str]
    """The instructions that store it, without `STORE_` and `DELETE_`."""
    key: str
    """The name in these instructions; "" for any."""
    is_searched: Callable[[str], bool]
    """Returns whether code of a file may store it."""
    frame: FrameType
    """Where it was found; its callers are watched, too."""
    is_local: bool = False
    """Whether it is a local variable of the frame, and ends with it."""

    def codes(self) -> list[CodeType]:
        """Return the functions in which the value is compared."""
        running = [frame.f_code for frame in with_callers(self.frame) if not is_library(frame.f_code.co_filename)]
        roots = [*(frame.f_code for _, frame in all_frames()), *(each.__code__ for each in all_functions().values())]
        known = {id(code): code for root in roots for code in with_inner(original_of(root))}
        storing = [code for code in known.values() if self._may_search(code.co_filename) and self._is_stored_in(code)]
        return [*{id(code): code for code in [*map(original_of, running), *storing]}.values()]

    def _may_search(self, file: str) -> bool:
        debugger = getattr(sys.modules.get("debugpy"), "__file__", None) or OWN[0]
        return self.is_searched(file) and not file.startswith((*OWN, os.path.dirname(debugger)))  # noqa: PTH120 - 10 ms

    def _is_stored_in(self, code: CodeType) -> bool:
        names = (*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars)
        if self.key and self.key not in names:
            return False
        for each in dis.get_instructions(code):
            verb, _, kind = each.opname.partition("_")
            if verb in {"STORE", "DELETE"} and kind.partition("_")[0] in self.kinds:
                stored = each.argval if isinstance(each.argval, tuple) else (each.argval,)  # two in one instruction
                if not self.key or self.key in stored:
                    return True
        return False


def variable(frame: FrameType, name: str, *, is_global: bool) -> Stored:
    """Return a variable of a frame that is stopped.

    Raises:
        ConfigurationError: it cannot be watched.
    """
    code = original_of(frame.f_code)
    is_local = not is_global and bool(code.co_flags & inspect.CO_OPTIMIZED)
    if is_local and sys.version_info < (3, 12):
        raise ConfigurationError("local variables are watched from Python 3.12 on")
    if is_local:
        check_locals([code])
    elif not is_global and frame.f_locals is not frame.f_globals:
        raise ConfigurationError("names in the body of a class are not watched")
    read = (lambda: local_names(frame)[name]) if is_local else partial(dict.__getitem__, frame.f_globals, name)
    kinds = frozenset({"FAST", "DEREF"} if is_local else {"GLOBAL", "NAME"})
    return Stored(name, read, kinds, name, code.co_filename.__eq__, frame, is_local)


def part(owner: Any, path: str, name: str, frame: FrameType) -> Stored:
    """Return an attribute or element of a value.

    Args:
        owner: The value.
        path: The expression that has this value.
        name: An attribute, or a key as the editor shows it.
        frame: Where the value was found.

    Raises:
        LookupError: there is no such part.
        TypeError: to read it would execute code.
    """
    if issubclass(type(owner), list):
        read = partial(list.__getitem__, owner, int(name))
        return Stored(f"{path}[{int(name)}]", read, frozenset({"SUBSCR", "SLICE"}), "", _is_own, frame)
    if issubclass(type(owner), dict):
        plain = (key for key in list(dict.keys(owner)) if type(key) in {str, int})
        key = next((key for key in plain if repr(key) == name), None)
        if key is None:
            raise LookupError(f"no key {name} of type str or int")
        read = partial(dict.__getitem__, owner, key)
        return Stored(f"{path}[{name}]", read, frozenset({"SUBSCR"}), "", _is_own, frame)
    return Stored(f"{path}.{name}", _reader(owner, name), frozenset({"ATTR"}), name, lambda _file: True, frame)


def _is_own(file: str) -> bool:
    """Return whether a file is not installed: nearly any function stores some element."""
    return not is_library(file)


def _reader(owner: Any, name: str) -> Callable[[], Any]:
    """Return a function that reads an attribute."""
    read_path(owner, ("attribute", name))  # raises if there is none, or to read it would execute code
    if issubclass(type(owner), type):
        return lambda: class_table(owner)[name]
    table, found = instance_table(owner), class_entry(type(owner), name)
    if type(found) is MemberDescriptorType:
        return lambda: found.__get__(owner)
    tables = [each for each in module_tables(owner) if dict.__contains__(each, name)]
    if tables and not dict.__contains__(table, name):
        return partial(dict.__getitem__, tables[0], name)
    default = _MISSING if found is None else found
    return lambda: dict.get(table, name, default)


class DataBreakpoint:
    """A value whose changes stop the thread that has made them.

    Args:
        stored: What is compared.
        condition: An expression; while it is false, no change stops a thread. "" for none.
        stop: Stops the current thread in a frame, with a sentence as the reason.

    Raises:
        ConfigurationError: the condition is not an expression.
    """

    def __init__(self, stored: Stored, condition: str, stop: Callable[[FrameType, str], None]) -> None:
        self.stored: Stored | None = stored
        """None once its variable has ended."""
        self.condition = condition
        self._name, self._is_local = stored.name, stored.is_local
        self._expression = Expression.of(condition)
        self._stop = stop
        self._latest: tuple[CodeType, int] | None = None
        """The line that was reached last."""
        self._remember(self._read())

    def hooks(self) -> list[Hook]:
        """Return hooks at all lines and returns of the functions in which the value is compared."""
        codes = self.stored.codes()[:MAX_FUNCTIONS] if self.stored else []
        places = [place for code in codes for place in every_place(code)]
        return [Hook(each, partial(self._reached, each.code, each.line), self._report) for each in places]

    # In the job's threads:

    def _reached(self, code: CodeType, line: int) -> int:
        """Return where this is, if the value has changed, or a call ends whose variable it may be; otherwise 0."""
        value = self._read()
        is_same = value is self._value and (not self._is_tensor or value._version == self._version)  # noqa: SLF001 - below
        if is_same and line != RETURN:
            self._latest = code, line
        return 0 if is_same and not (line == RETURN and self._is_local) else AT_RETURN if line == RETURN else AT_LINE

    def _read(self) -> Any:
        try:
            return self.stored.read() if self.stored else _MISSING
        except RecursionError:  # the job is just below the limit
            raise
        except Exception:  # noqa: BLE001 - each kind of place has its own way to be empty
            return _MISSING

    def _remember(self, value: Any) -> None:
        torch: Any = sys.modules.get("torch")
        kinds = (getattr(torch, "Tensor", None), getattr(getattr(torch, "nn", None), "Parameter", None))
        self._value = value
        self._is_tensor = any(type(value) is kind for kind in kinds) and not value.is_inference()
        self._version = value._version if self._is_tensor else 0  # noqa: SLF001 - torch counts changes in place with it

    def _report(self, frame: FrameType, where: int) -> None:
        """Stop the thread if the value has changed."""
        old, version, latest = self._value, self._version, self._latest
        self._remember(self._read())
        self._latest = here = original_of(frame.f_code), frame.f_lineno
        if version != self._version if old is self._value else not _is_same(old, self._value):
            place = f"by {_place(*latest)}" if latest and latest[0] is here[0] else f"before {_place(*here)}"
            reason = f"{self._name} {_change(self._name, old, self._value)} {place}"
            if (remark := self._check_condition(frame)) is not None:
                self._stop(frame, f"{reason}{remark}")
        if self._is_local and where == AT_RETURN and self.stored and frame is self.stored.frame:
            self.stored, self._value = None, _MISSING  # and all that the call refers to

    def _check_condition(self, frame: FrameType) -> str | None:
        """Return what to add about the condition; None if it is false."""
        if self._expression is None or keeper_of(frame.f_code):
            return ""
        try:
            return "" if self._expression.value(frame, local_names(frame)) else None
        except BaseException as error:  # noqa: BLE001 - the expression may raise anything
            return f" (its condition raised {failure(error)})"


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two objects are the same number or text."""
    return type(old) is type(new) and any(type(old) is kind for kind in _SCALARS) and repr(old) == repr(new)


def _change(name: str, old: Any, new: Any) -> str:
    if old is new:
        return "was changed in place"
    if new is _MISSING:
        return "was deleted"
    return (
        f"was set to {_shown(name, new)}" if old is _MISSING else f"changed {_shown(name, old)} -> {_shown(name, new)}"
    )


def _shown(name: str, value: Any) -> str:
    try:
        text = " ".join(short_repr(value).splitlines())
    except BaseException as error:  # noqa: BLE001 - the job's `__repr__` may raise anything
        return failure(error)
    shown = HIDDEN if is_secret(name, text) else text
    return shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}..."


def _place(code: CodeType, line: int) -> str:
    return f"{getattr(code, 'co_qualname', code.co_name)} {PurePath(code.co_filename).name}:{line}"

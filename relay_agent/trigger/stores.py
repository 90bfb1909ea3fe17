"""Stops a thread when a variable, attribute or element has changed.

Python reports no stores. So the value is compared at each line of the functions that contain a store to such a name,
and before they return; and of the calls that are running when the breakpoint is set. The latter notice what no
instruction shows: `setattr`, `update`, a tensor that an optimizer changes in place. All other code keeps its speed.

A change is attributed to the line that was executed last in such a function, if this line contains a store. If it does
not, the change was made during the line: in a call that it has made, or by another thread.
"""

from __future__ import annotations

import dis
import inspect
import os
import sys
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from types import CodeType, FrameType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from relay_agent.job.signal_handlers import is_of_signal
from relay_agent.push.loaded_code import all_functions, original_of, with_inner
from relay_agent.stacks.in_process import all_frames, is_users, with_callers
from relay_agent.stacks.local_names import keeper_of, local_names
from relay_agent.trigger.expression import Expression, failure
from relay_agent.trigger.places import RETURN, Hook, check_locals, every_place, first_line
from relay_agent.values.presentation import short_repr
from relay_agent.values.secrets import HIDDEN, is_secret
from relay_agent.values.static_path import (
    class_entry,
    instance_table,
    is_of_its_module,
    module_tables,
    package_of,
    read_path,
    type_name,
)
from relay_core.agent_api.stacks import OWN, is_library
from relay_core.errors import ConfigurationError
from relay_core.foreign import escape_controls

MAX_FUNCTIONS = 500
"""Maximum number of functions in which a value is compared."""
MAX_TEXT = 80
"""Maximum number of characters of a value in a sentence."""
AT_LINE, AT_RETURN = 1, 2
MISSING = object()
"""In place of a value that does not exist."""
_SCALARS = (bool, int, float, complex, str, bytes)


@dataclass(frozen=True)
class Stored:
    """A variable, attribute or element."""

    name: str
    """The expression that has its value."""
    read: Callable[[], Any]
    """Returns the value, or raises an exception or returns `MISSING` if there is none; executes no code of the job."""
    kinds: frozenset[str]
    """The instructions that store it, without `STORE_` and `DELETE_`."""
    key: str
    """The name in these instructions; "" for any."""
    is_searched: Callable[[str], bool]
    """Returns whether code of a file may store it."""
    running: tuple[CodeType, ...]
    """The user's functions that were being executed."""
    frame: FrameType | None = None
    """The call whose local variable it is; None if it is none."""

    def codes(self) -> list[CodeType]:
        """Return the functions in which the value is compared."""
        roots = [*(frame.f_code for _, frame in all_frames()), *(each.__code__ for each in all_functions().values())]
        known = {id(code): code for root in roots for code in with_inner(original_of(root))}
        storing = [code for code in known.values() if self._may_search(code.co_filename) and self.stored_at(code)]
        return [*{id(code): code for code in (*self.running, *storing)}.values()]

    def _may_search(self, file: str) -> bool:
        debugger = getattr(sys.modules.get("debugpy"), "__file__", None) or OWN[0]
        return self.is_searched(file) and not file.startswith((*OWN, os.path.dirname(debugger)))  # noqa: PTH120 - 10 ms

    def stored_at(self, code: CodeType) -> set[int | None]:
        """Return the lines of a code object that contain such a store."""
        names = (*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars)
        if self.key and self.key not in names:
            return set()
        found = {each.offset for each in dis.get_instructions(code) if self._is_store(each)}
        return {line for start, stop, line in code.co_lines() if not found.isdisjoint(range(start, stop))}

    def _is_store(self, each: dis.Instruction) -> bool:
        verb, _, kind = each.opname.partition("_")
        stored = each.argval if isinstance(each.argval, tuple) else (each.argval,)  # two in one instruction
        is_store = verb in {"STORE", "DELETE"} and kind.partition("_")[0] in self.kinds
        return is_store and (not self.key or self.key in stored)


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
        if any(each.argval == name for each in dis.get_instructions(code) if each.opname == "LOAD_FAST_AND_CLEAR"):
            raise ConfigurationError("a comprehension of the function has a variable of the same name")
        read = partial(_local, frame, name)
    elif is_global or frame.f_locals is frame.f_globals:
        read = partial(dict.__getitem__, frame.f_globals, name)
    else:
        raise ConfigurationError("names in the body of a class are not watched")
    if is_local:
        return Stored(name, read, frozenset({"FAST", "DEREF"}), name, code.co_filename.__eq__, _running(frame), frame)
    return Stored(name, read, frozenset({"GLOBAL", "NAME", "ATTR"}), name, _is_any, _running(frame))


def _local(frame: FrameType, name: str) -> Any:
    return local_names(frame)[name]


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
        read()
        return Stored(f"{path}[{int(name)}]", read, frozenset({"SUBSCR", "SLICE"}), "", _is_own, _running(frame))
    if issubclass(type(owner), dict):
        keys = list(dict.keys(owner))
        if any(type(key) not in {str, int} for key in keys):
            raise TypeError("the dict has keys of other types than str and int, whose code would be executed")
        key = next((key for key in keys if repr(key) == name), MISSING)
        if key is MISSING:
            raise LookupError(f"no key {name} of type str or int")
        read = partial(dict.__getitem__, owner, key)
        return Stored(f"{path}[{name}]", read, frozenset({"SUBSCR"}), "", _is_own, _running(frame))
    kinds = frozenset({"ATTR"})
    return Stored(f"{path}.{name}", _reader(owner, name), kinds, name, _is_any, _running(frame))


def _running(frame: FrameType) -> tuple[CodeType, ...]:
    """Return the user's functions that a thread is executing."""
    return tuple(original_of(each.f_code) for each in with_callers(frame) if is_users(each))


def _is_any(_file: str) -> bool:
    """Return true: few functions store the name, wherever they are."""
    return True


def _is_own(file: str) -> bool:
    """Return whether a file is not installed: nearly any function stores some element."""
    return not is_library(file)


def _reader(owner: Any, name: str) -> Callable[[], Any]:
    """Return a function that reads an attribute."""
    read_path(owner, ("attribute", name))  # raises if there is none, or to read it would execute code
    if issubclass(type(owner), type):
        return lambda: class_entry(owner, name, MISSING)
    found = class_entry(type(owner), name, MISSING)
    if type(found) is MemberDescriptorType:
        return lambda: found.__get__(owner)
    if type(found) is GetSetDescriptorType:
        raise TypeError("code in C computes it")
    tables = [each for each in module_tables(owner) if dict.__contains__(each, name)]
    if tables and not dict.__contains__(instance_table(owner), name):
        return partial(dict.__getitem__, tables[0], name)
    table: Any = class_entry(type(owner), "__dict__")
    if type(table) is not GetSetDescriptorType and type(table) is not MemberDescriptorType:
        raise TypeError("the object has no dict of attributes")

    def read() -> Any:
        value = dict.get(table.__get__(owner), name, MISSING)
        return class_entry(type(owner), name, MISSING) if value is MISSING else value

    return read


class DataBreakpoint:
    """A value whose changes stop the thread that has made them.

    Args:
        stored: What is compared.
        condition: An expression; while it is false, no change stops a thread. "" for none.
        stop: Stops the current thread in a frame, with a sentence as the reason; true if the function is returning.

    Raises:
        ConfigurationError: the condition is not an expression.
    """

    def __init__(self, stored: Stored, condition: str, stop: Callable[[FrameType, str, bool], None]) -> None:
        self.stored: Stored | None = stored
        """None once its variable has ended."""
        self.condition = condition
        self.is_on = True
        """Whether the value is compared; the user may have switched it off."""
        self._name, self._call = stored.name, stored.frame
        self.is_local = stored.frame is not None
        self._expression = Expression.of(condition)
        self._stop = stop
        self._latest: tuple[CodeType, int, int] | None = None
        """The line that was reached last, and the thread that has reached it."""
        self.note = ""
        """What the user should know."""
        self.renew()

    def hooks(self) -> list[Hook]:
        """Return hooks at all lines and returns of the functions in which the value is compared, as it is now."""
        self.renew()
        codes = self.stored.codes() if self.stored else []
        more = len(codes) > MAX_FUNCTIONS
        self.note = f"compared in {MAX_FUNCTIONS} of {len(codes):,} functions that store it" if more else ""
        places = [place for code in codes[:MAX_FUNCTIONS] for place in every_place(code)]
        return [Hook(each, partial(self._reached, each.code, each.line), self._report) for each in places]

    # In the job's threads:

    def _reached(self, code: CodeType, line: int) -> int:
        """Return where this is, if the value has changed, or a call ends whose variable it may be; otherwise 0."""
        if self._call is not None and sys._getframe(2) is not self._call:  # noqa: SLF001 - its documented name
            return 0 if line != RETURN else AT_RETURN
        value = self._read()
        is_same = value is self._value and (not self._is_tensor or _version(value) == self._version)
        if is_same:
            self._latest = (code, line, get_ident()) if line != RETURN else None
        if is_same and (line != RETURN or self._call is None):
            return 0
        return AT_RETURN if line == RETURN else AT_LINE

    def _read(self) -> Any:
        try:
            return self.stored.read() if self.stored else MISSING
        except Exception as error:
            if isinstance(error, RecursionError) or is_of_signal(error):  # the job is just below the limit
                raise
            return MISSING

    def renew(self) -> None:
        """Compare with the present value from now on; keep none while nothing is compared."""
        self._value = self._read() if self.is_on else MISSING
        self._is_tensor = _is_tensor(type(self._value))
        self._version = _version(self._value) if self._is_tensor else 0

    def _report(self, frame: FrameType, where: int) -> None:
        """Stop the thread if the value has changed."""
        if self._call is not None and frame is not self._call:
            if self._call not in with_callers(frame) and self._call.f_back is None:  # it was left by an exception
                self._end()
            return
        old, version, latest = self._value, self._version, self._latest
        here = original_of(frame.f_code), frame.f_lineno, get_ident()
        self.renew()
        self._latest = here if where == AT_LINE else None
        is_changed = version != self._version if old is self._value else not _is_same(old, self._value)
        if is_changed and (remark := self._check_condition(frame)) is not None:
            is_entered = where == AT_LINE and here[1] == first_line(here[0])
            is_same_call = latest is not None and latest[::2] == here[::2] and not is_entered
            place = f"before {_place(*here)}"
            if latest is not None and is_same_call:
                is_store = self.stored is not None and latest[1] in self.stored.stored_at(latest[0])
                place = f"{'by' if is_store else 'during'} {_place(*latest)}"
            reason = f"{self._name} {_change(self._name, old, self._value)} {place}{remark}"
            self._stop(frame, escape_controls(reason), where == AT_RETURN)
        if frame is self._call and where == AT_RETURN:
            self._end()

    def _end(self) -> None:
        """Forget the call whose variable it was, and all that the call refers to."""
        self.stored, self._call, self._value = None, None, MISSING

    def _check_condition(self, frame: FrameType) -> str | None:
        """Return what to add about the condition; None if it is false."""
        if self._expression is None:
            return ""
        if keeper := keeper_of(frame.f_code):
            return f" (its condition was not evaluated, because the function calls {keeper}())"
        try:
            return "" if self._expression.value(frame, local_names(frame)) else None
        except BaseException as error:  # noqa: BLE001 - the expression may raise anything
            return f" (its condition raised {failure(error)})"


def _is_tensor(kind: type) -> bool:
    is_own = package_of(kind) == "torch" and type_name(kind) in {"Tensor", "Parameter"}
    return is_own and is_of_its_module(kind)


def _version(tensor: Any) -> int:
    """Return the number of changes in place, which torch counts except in inference mode; without the job's modes."""
    with sys.modules["torch._C"].DisableTorchFunction():  # there is a tensor
        return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001 - no other name


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two objects are the same number or text; NaN equals itself, and 0.0 is not -0.0."""
    if type(old) is not type(new) or not any(type(old) is kind for kind in _SCALARS):
        return False
    return repr(old) == repr(new) if isinstance(old, (float, complex)) else bool(old == new)


def _change(name: str, old: Any, new: Any) -> str:
    if old is new:
        return "was changed in place"
    if new is MISSING:
        return "was deleted"
    return (
        f"was set to {_shown(name, new)}" if old is MISSING else f"changed {_shown(name, old)} -> {_shown(name, new)}"
    )


def _shown(name: str, value: Any) -> str:
    try:
        text = " ".join(short_repr(value).splitlines())
    except BaseException as error:  # noqa: BLE001 - the job's `__repr__` may raise anything
        return failure(error)
    shown = HIDDEN if is_secret(name, text) else text
    return shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}..."


def _place(code: CodeType, line: int, _thread: int) -> str:
    return f"{getattr(code, 'co_qualname', code.co_name)} {PurePath(code.co_filename).name}:{line}"

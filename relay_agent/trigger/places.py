"""Where a line of a file is in this process: the code objects that execute it, and who refers to them.

A code object is reached from the functions that have it, from the frames that execute it, and from the code around it.
Functions and suspended generators are searched for among the objects of the collector, for the reasons that
`relay_agent.push.loaded_code` gives; the frames that execute are known to the interpreter only.

What a line is: a debugger stops twice at the first line of `f(a,<newline>b)`, because the call belongs to that line as
well as the name. A watch would count each step twice. So the line begins only where its first instruction is, or the
same instruction once more: the compiler copies the test of `while` to the end of the loop, and the code of `finally`.
The line of a `for` statement begins once for each item, and once more at the end of the loop.
"""

from __future__ import annotations

import bisect
import dis
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from types import CodeType, FrameType
from typing import NamedTuple

from relay_agent.push.loaded_code import JUMPS, all_functions, original_of, with_inner
from relay_agent.stacks.in_process import all_frames
from relay_agent.stacks.local_names import keeper_of
from relay_core.agent_api.stacks import OWN, is_library
from relay_core.errors import ConfigurationError

_RETURNS = {"RETURN_VALUE", "RETURN_CONST"}
RETURN = 0
"""In place of a line: where a function returns."""
MAX_NAMES = 3
"""Maximum number of files or functions that a sentence names."""


class Place(NamedTuple):
    """A line in one code object."""

    code: CodeType
    line: int
    """Its number, or `RETURN`."""
    starts: frozenset[int]
    """The offsets of the instructions at which the line begins."""
    ignored: frozenset[int]
    """Offsets at which Python reports the line although it does not begin there."""

    def __str__(self) -> str:
        return f"{self.code.co_name} {PurePath(self.code.co_filename).name}:{self.line}"


class Hook(NamedTuple):
    """A place, and the functions of the watch that are called when a thread reaches it."""

    place: Place
    reached: Callable[[], int]
    """Called in the job's thread before the line is executed; returns a number if this time matters, or else 0."""
    report: Callable[[FrameType, int], None]
    """Called then with the number; raises only what a signal handler of the job raises."""


def find_codes(file: str) -> list[CodeType]:
    """Return the code objects of a file that functions have or frames execute.

    Args:
        file: Absolute, or the last parts of a path. Installed code is found only if no other code is, and not by its
            bare name, which may be that of a file of the user that is not loaded yet.

    Raises:
        ConfigurationError: several loaded files have such a path.
    """
    codes = [frame.f_code for _, frame in all_frames()]
    codes += [function.__code__ for function in all_functions().values()]
    names = [name for name in {code.co_filename for code in codes} if _is_path(name, file) and not name.startswith(OWN)]
    own = [name for name in names if not is_library(name)] or (names if len(PurePath(file).parts) > 1 else [])
    if len(own) > 1:
        raise ConfigurationError(
            f"several loaded files end in {file}: {', '.join(sorted(own)[:MAX_NAMES])}", hint="give more of the path"
        )
    originals = (original_of(code) for code in codes if code.co_filename in own)
    return list({id(code): code for code in originals}.values())


def _is_path(name: str, file: str) -> bool:
    """Return whether the file name in a code object is the wanted path, or ends in it."""
    wanted = PurePath(file).parts
    if PurePath(name).parts[-len(wanted) :] == wanted:
        return True
    # Only a file of the same name is looked up on the disk; a link to the file has its name in nearly all cases.
    is_alike = PurePath(file).is_absolute() and PurePath(name).name == wanted[-1]
    return is_alike and os.path.realpath(name) == os.path.realpath(file)


def find_places(codes: Iterable[CodeType], line: int) -> list[Place]:
    """Return where a line is, or else the next line that has code, if there is one.

    Behind a function, this is the last line before it: the module has probably executed the next one already. The code
    of a lambda or generator expression counts as part of the line that contains it.
    """
    known = {id(code): code for root in codes for code in with_inner(root)}
    starts = {key: {found for _, found in _line_starts(code)} for key, code in known.items()}
    lines = sorted({found for each in starts.values() for found in each})
    index = bisect.bisect_left(lines, line)
    if index == len(lines):
        return []
    functions = [key for key, code in known.items() if code.co_flags & inspect.CO_OPTIMIZED and code.co_name[0] != "<"]
    spans = [(known[key].co_firstlineno, max(starts[key], default=0)) for key in functions]
    behind, inside = (any(first <= each <= last for first, last in spans) for each in (lines[index - 1], line))
    line = lines[index - (index > 0 and lines[index] != line and behind and not inside)]
    chosen = [code for key, code in known.items() if line in starts[key]]
    inner = {id(code) for outer in chosen for code in with_inner(outer) if code is not outer}
    return [_place(code, line) for code in chosen if id(code) not in inner]


def check_locals(codes: Iterable[CodeType]) -> None:
    """Raise ConfigurationError if one of these functions may keep its local names in a dict of its own."""
    for code in codes:
        if keeper := keeper_of(code):
            raise ConfigurationError(
                f"{code.co_name}() calls {keeper}(), whose result a watch would change",
                hint="watch a line of another function, or use Python 3.13",
            )


def every_place(code: CodeType) -> Iterator[Place]:
    """Yield all lines of a code object, and its returns."""
    lines: dict[int, set[int]] = {}
    for offset, line in _line_starts(code):
        lines.setdefault(line, set()).add(offset)
    lines[RETURN] = {each.offset for each in dis.get_instructions(code) if each.opname in _RETURNS}
    for line, starts in lines.items():
        yield Place(code, line, frozenset(starts), frozenset())


def first_line(code: CodeType) -> int:
    """Return the number of the line that a call executes first; 0 if there is none."""
    return next((line for _, line in _line_starts(code)), 0)


def _line_starts(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yield offset and line of each instruction before which the line changes, without the beginning of a function.

    A function begins with instructions that belong to the line of its `def`.
    """
    begin = _first_traceable(code)
    before: int | None = None
    for start, stop, line in code.co_lines():
        if stop > begin and line is not None and line != before:
            yield max(start, begin), line
        before = line if stop > begin else None


def _first_traceable(code: CodeType) -> int:
    """Return the offset of the first instruction of the body."""
    bytecode = code.co_code
    if sys.version_info >= (3, 11):
        return next((index + 2 for index in range(0, len(bytecode), 2) if bytecode[index] == dis.opmap["RESUME"]), 0)
    return 2 if bytecode[0] == dis.opmap["GEN_START"] else 0


def _place(code: CodeType, line: int) -> Place:
    lines = {offset: number for start, stop, number in code.co_lines() for offset in range(start, stop, 2)}
    instructions = {each.offset: each for each in dis.get_instructions(code)}
    found = [offset for offset, number in _line_starts(code) if number == line]
    jumps = [each for each in instructions.values() if each.opcode in JUMPS and lines[each.offset] != line]
    targets = [(each.argval, each.argval < each.offset) for each in jumps if lines.get(each.argval) == line]
    first = instructions[found[0]]
    copies = {
        offset
        for offset in (*found, *(target for target, _ in targets))
        if (instructions[offset].opcode, instructions[offset].arg) == (first.opcode, first.arg)
    }
    loops = {target for target, is_backward in targets if is_backward} - {*found}
    return Place(code, line, frozenset(copies - {found[0]} | loops if loops else copies), frozenset(found) - copies)

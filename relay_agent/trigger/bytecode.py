"""Inserts calls into code objects of Python 3.10 and 3.11.

The bytecode is changed and not the source: the source may have been edited since it was loaded, or not exist (a
function that a cluster library has sent by value, a notebook, a module that pytest has rewritten). The formats of the
two versions are final. CPython describes them in Objects/lnotab_notes.txt (3.10), and in Objects/locations.md and
Objects/exception_handling_notes.txt (3.11).

Positions are in units of two bytes, as in jumps.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

_IS_3_10 = sys.version_info < (3, 11)
_CALL = ["LOAD_CONST", "CALL_FUNCTION", "POP_TOP"]
if not _IS_3_10:
    _CALL = ["PUSH_NULL", "LOAD_CONST", "PRECALL", "CALL", "POP_TOP"]
_CALL_STACK = 2
"""How many values these instructions put on the stack at most."""
_CACHES: Sequence[int] = getattr(dis, "_inline_cache_entries", [0] * 256)
"""The number of units that follow an instruction of each kind."""
_IS_BACKWARD = {number for name, number in dis.opmap.items() if "BACKWARD" in name}


class _Instruction:
    """An instruction of the new code."""

    def __init__(self, opcode: int, arg: int, where: Any, target: int | None = None) -> None:
        self.opcode = opcode
        self.arg = arg
        self.where = where
        """Its line in Python 3.10, and its line and columns in 3.11; None for no line."""
        self.target = target
        """If it is a jump, the offset of its target in the old code."""
        self.position = self.extended = 0
        """Where it begins, and the number of EXTENDED_ARG in front of it."""

    @property
    def end(self) -> int:
        """Where the next instruction begins."""
        return self.position + self.extended + 1 + _CACHES[self.opcode]

    def encode(self) -> bytes:
        units = [(dis.EXTENDED_ARG, self.arg >> 8 * index & 255) for index in range(self.extended, 0, -1)]
        units += [(self.opcode, self.arg & 255), *[(0, 0)] * _CACHES[self.opcode]]
        return bytes(byte for unit in units for byte in unit)


def with_calls(code: CodeType, calls: Mapping[int, Sequence[Callable[[], None]]]) -> CodeType:
    """Return a code object that calls functions before some instructions, and otherwise does the same.

    Args:
        code: The code object.
        calls: The functions, by the offset of the instruction in bytes.
    """
    constants = list(code.co_consts)
    new: list[_Instruction] = []
    labels: dict[int, int] = {}
    """The index among the new instructions, by offset in the old code."""
    lines = {offset: line for start, stop, line in code.co_lines() for offset in range(start, stop, 2)}
    offsets: list[int] = []
    for each in dis.get_instructions(code):
        offsets.append(each.offset)
        if each.opcode == dis.EXTENDED_ARG:
            continue
        labels |= dict.fromkeys(offsets, len(new))
        where = lines[each.offset] if _IS_3_10 else each.positions  # type: ignore[attr-defined] # Python 3.11
        for call in [call for offset in offsets for call in calls.get(offset, ())]:
            arguments = {"LOAD_CONST": len(constants)}
            constants.append(call)
            new += [_Instruction(dis.opmap[name], arguments.get(name, 0), where) for name in _CALL]
        is_jump = each.opcode in dis.hasjrel or each.opcode in dis.hasjabs
        new.append(_Instruction(each.opcode, each.arg or 0, where, each.argval if is_jump else None))
        offsets = []
    _lay_out(new, labels)
    end = labels[len(code.co_code)] = len(new)
    positions = {offset: new[index].position if index < end else new[-1].end for offset, index in labels.items()}
    changed: dict[str, Any] = {
        "co_code": b"".join(each.encode() for each in new),
        "co_consts": tuple(constants),
        "co_stacksize": code.co_stacksize + _CALL_STACK,
    }
    if _IS_3_10:
        return code.replace(**changed, co_linetable=b"".join(_lines(new, code.co_firstlineno)))
    changed["co_exceptiontable"] = b"".join(_handlers(code, positions))
    return code.replace(**changed, co_linetable=b"".join(_locations(new, code.co_firstlineno)))


def _lay_out(new: Sequence[_Instruction], labels: Mapping[int, int]) -> None:
    """Set positions and the arguments of jumps; a longer argument can make others longer, so repeat this."""
    is_changed = True
    while is_changed:
        is_changed, position = False, 0
        for each in new:
            each.position, position = position, position + each.end - each.position
        for each in new:
            if each.target is not None:
                target = new[labels[each.target]].position
                relative = each.end - target if each.opcode in _IS_BACKWARD else target - each.end
                each.arg = target if each.opcode in dis.hasjabs else relative
            needed = max(0, (each.arg.bit_length() - 1) // 8)
            if needed > each.extended:
                each.extended, is_changed = needed, True


def _lines(new: Sequence[_Instruction], line: int) -> Iterator[bytes]:
    """Yield the entries of the line table of Python 3.10."""
    for each in new:
        left = 2 * (each.end - each.position)
        delta = -128 if each.where is None else each.where - line
        while delta not in range(-128, 128) or (delta == -128 and each.where is not None):
            step = max(-127, min(127, delta))
            yield bytes((0, step & 255))
            delta -= step
        yield bytes((left, delta & 255))
        line = line if each.where is None else each.where


def _locations(new: Sequence[_Instruction], line: int) -> Iterator[bytes]:
    """Yield the entries of the location table of Python 3.11."""
    for each in new:
        where, left = each.where, each.end - each.position
        while left:
            units, left = min(left, 8), left - min(left, 8)
            if where is None or where.lineno is None:
                yield bytes((0x80 | 15 << 3 | units - 1,))
                continue
            delta, line = where.lineno - line, where.lineno
            start = _varint(-delta << 1 | 1 if delta < 0 else delta << 1)
            if None in where:
                yield bytes((0x80 | 13 << 3 | units - 1,)) + start
                continue
            columns = (where.end_lineno - line, where.col_offset + 1, where.end_col_offset + 1)
            yield bytes((0x80 | 14 << 3 | units - 1,)) + start + b"".join(map(_varint, columns))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 63:
        encoded.append(64 | value & 63)
        value >>= 6
    return bytes((*encoded, value))


def _handlers(code: CodeType, positions: Mapping[int, int]) -> Iterator[bytes]:
    """Yield the entries of the exception table of Python 3.11."""
    for start, end, target, depth, lasti in dis._parse_exception_table(code):  # type: ignore[attr-defined] # noqa: SLF001
        first = positions[start]
        fields = (first, positions[end] - first, positions[target], depth << 1 | lasti)
        for index, field in enumerate(fields):
            digits = [field >> shift & 63 for shift in range(0, max(1, field.bit_length()), 6)][::-1]
            marked = [*(64 | digit for digit in digits[:-1]), digits[-1]]
            yield bytes((marked[0] | (0x80 if index == 0 else 0), *marked[1:]))

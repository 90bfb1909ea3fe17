"""Facts about calls in code objects."""

import dis
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from relay_agent.push.loaded_code import with_inner
from relay_agent.trigger.bytecode import with_calls
from relay_agent.trigger.places import find_places

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 has sys.monitoring")
LIBRARY = Path(sysconfig.get_path("stdlib"))


def codes(name: str) -> Iterator[CodeType]:
    return with_inner(compile((LIBRARY / name).read_text(), name, "exec", dont_inherit=True))


def described(code: CodeType) -> list[object]:
    """Return everything about the instructions of a code object except how long they are."""
    found = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    index = {each.offset: number for number, each in enumerate(found)}
    jumps = {*dis.hasjrel, *dis.hasjabs}
    lines = {offset: line for start, stop, line in code.co_lines() for offset in range(start, stop, 2)}
    return [
        (
            each.opname,
            index.get(each.argval) if each.opcode in jumps else each.arg,
            lines[each.offset],
            getattr(each, "positions", None),
        )
        for each in found
    ]


@pytest.mark.parametrize("name", ["argparse.py", "contextlib.py", "asyncio/base_events.py", "typing.py"])
def test_nothing_changes_without_calls(name: str) -> None:
    """Instructions, jumps, lines, columns and handlers are the same after they were taken apart and put together."""
    for code in codes(name):
        same = with_calls(code, {})
        assert described(code) == described(same)
        assert getattr(code, "co_exceptiontable", b"") == getattr(same, "co_exceptiontable", b"")


def counted(source: str, name: str) -> tuple[object, list[int]]:
    """Return the result of a function with calls at each of its lines, and the lines in the order of the calls."""
    names: dict[str, object] = {}
    exec(compile(source, "<counted>", "exec", dont_inherit=True), names)
    function = names[name]
    assert inspect.isfunction(function)
    lines: list[int] = []
    calls: dict[int, list[object]] = {}
    for line in {line for _, _, line in function.__code__.co_lines() if line}:
        for place in find_places([function.__code__], line):
            if place.line == line and place.code is function.__code__:
                calls |= {offset: [lambda: lines.append(sys._getframe(1).f_lineno)] for offset in place.starts}
    function.__code__ = with_calls(function.__code__, calls)  # type: ignore[arg-type]
    return function(), lines


def test_calls_in_all_kinds_of_statements() -> None:
    """Loops, handlers, `with` and `finally` do the same with calls, which see the number of their line."""
    source = """\
def run():
    found = []
    for n in range(2):
        try:
            with open("/dev/null") as file:
                found.append(1 // n)
        except ZeroDivisionError:
            found.append(file.closed)
            continue
        finally:
            found.append(n)
    return found
"""
    result, lines = counted(source, "run")
    assert [True, 0, 1, 1] == result
    assert [2, 3, 4, 5, 6, 7, 8, 9, 11, 3, 4, 5, 6, 11, 3, 12] == lines


def test_long_jumps() -> None:
    """Jumps over more than 255 instructions, and constants with larger numbers, become longer where necessary."""
    body = "".join(f"        total += {1000 + number}\n" for number in range(400))
    result, lines = counted(f"def run():\n    total = 0\n    for _ in range(3):\n{body}    return total\n", "run")
    assert 3 * sum(range(1000, 1400)) == result
    assert 3 * 400 + 4 + 2 == len(lines)


def test_traceback_of_a_changed_function() -> None:
    """The traceback of an exception in changed code has the right line, also in functions with gaps between lines."""
    source = "def run():\n" + "\n" * 300 + "    value = 1\n" + "\n" * 300 + "    raise ValueError(value)\n"
    with pytest.raises(ValueError, match="1") as raised:
        counted(source, "run")
    assert raised.traceback[-1].lineno + 1 == 603

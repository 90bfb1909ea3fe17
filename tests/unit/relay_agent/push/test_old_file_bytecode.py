"""Facts about constants in cached bytecode."""

import py_compile
from pathlib import Path

from relay_agent.push.old_file import cached_constants, constants_of

SOURCE = """\
LR = 0.1
SIZES: tuple[int, ...] = (1, -2)
twice = 1
twice = 2
both = other = 3
state = {}
class Net:
    rate = 300
    class Inner:
        name = "x"
def f():
    local = 1
"""
CONSTANTS = {"LR": 0.1, "SIZES": (1, -2), "Net.rate": 300, "Net.Inner.name": "x"}


def shown(found: dict[str, object]) -> dict[str, object]:
    """Leave out the names that a class body assigns on its own."""
    return {name: value for name, value in found.items() if not name.rpartition(".")[2].startswith("__")}


def test_constants_of_module_and_classes():
    """A name that is assigned once, from a literal, has its value; local variables have none."""
    assert CONSTANTS == shown(constants_of(compile(SOURCE, "a.py", "exec")))


def test_file(tmp_path: Path):
    """They are read from the file that an import writes; without a usable file there are none."""
    source = tmp_path / "a.py"
    source.write_text(SOURCE)
    path = py_compile.compile(str(source), doraise=True)
    assert CONSTANTS == shown(cached_constants(path))
    Path(path).write_bytes(Path(path).read_bytes()[:40])
    assert [{}] * 4 == [cached_constants(each) for each in (path, str(source), str(tmp_path), "")]

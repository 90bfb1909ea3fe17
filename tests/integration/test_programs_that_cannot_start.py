"""`relay-agent run` above a program that Python cannot start: nobody waits for a debugger before Python reports why."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.jobs.run_stage import Stage

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a process becomes another one on POSIX systems only")

BROKEN = "def f(:\n"


@pytest.mark.parametrize(
    "command",
    [
        "{python} missing.py",
        "{python} broken.py",
        "{python} broken",
        "{python} -m missing",
        "{python} -m broken",
        "{python} -m package.missing",
        "{python} -m package.broken",
        "{python} -m package",
    ],
)
async def test_nobody_waits_for_a_program_that_cannot_start(tmp_path: Path, command: str):
    """Whatever has started it; the error is Python's own."""
    stage = Stage(tmp_path)
    (tmp_path / "package").mkdir()
    for name in "broken.py", "broken", "package/__init__.py", "package/broken.py":
        stage.write(name, "" if "init" in name else BROKEN)
    line = command.format(python=sys.executable)
    status, out, err = await stage.run("sh", "-c", f"{line}; exit $?", under_run=False)
    assert status
    found = await stage.run("sh", "-c", f"{line}; exit $?")
    assert (status, out, err.splitlines()[-1]) == (*found[:2], found[2].splitlines()[-1])
    assert [] == stage.record()


@pytest.mark.parametrize("line", ["/dev/stdin", "-W error odd.py", "-m odd", "program.pyc"])
async def test_what_can_start_is_debugged(tmp_path: Path, line: str):
    """A program in a pipe is not read twice; warnings of the compiler do not count, and a compiled file is run."""
    stage = Stage(tmp_path)
    odd = stage.write("odd.py", "# coding: latin-1\nprint('\\d' 'ran')\n")
    if line == "program.pyc":
        code = f"import py_compile; py_compile.compile({odd!r}, cfile='program.pyc')"
        await stage.python("-W", "ignore", "-c", code, under_run=False)
    program = b"print('ran')\n" if line == "/dev/stdin" else b""
    stage.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what was compiled before causes no warning
    usual = await stage.run(sys.executable, *line.split(), under_run=False, stdin=program)
    assert usual == await stage.run(sys.executable, *line.split(), stdin=program)
    assert 1 == len(stage.record()) or usual[0]


@pytest.mark.parametrize(("program", "waiting"), [("missing.py", 0), ("-m package.broken", 0), ("good.py", 1)])
async def test_nobody_waits_under_torchrun(tmp_path: Path, program: str, waiting: int):
    """A rank of torchrun whose script or module cannot start takes no part; any other one does."""
    pytest.importorskip("torch", reason="torch is not installed")
    stage = Stage(tmp_path)
    (tmp_path / "package").mkdir()
    for name in "package/__init__.py", "package/broken.py", "good.py":
        stage.write(name, BROKEN if "broken" in name else "")
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1")
    status, _, _ = await stage.run(*launcher, *program.split())
    assert (waiting, waiting == 0) == (len(stage.record()), status != 0)

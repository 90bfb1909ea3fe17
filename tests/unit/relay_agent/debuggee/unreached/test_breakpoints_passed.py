"""Facts about breakpoints in the lines of a script that have already run."""

from pathlib import Path

from relay_agent.debuggee.unreached.breakpoints import Place, has_run, is_executed

SCRIPT = """\
first = 1
for step in range(2):
    again = step
    look()
def function():
    inside = 1
last = (
    look(),
    2,
)
end = 1
"""


def test_lines_that_are_not_executed_again(tmp_path: Path) -> None:
    """Those before the current line, but for those of a loop that is running, and of functions."""
    file, found = tmp_path.resolve() / "script.py", []
    lines = range(1, 1 + SCRIPT.count("\n"))

    def look() -> None:
        found.append([line for line in lines if has_run(Place(str(file), line))])

    exec(compile(SCRIPT, str(file), "exec"), {"look": look})
    assert [[1], [1], [1, 2, 3, 4, 5]] == found


def test_files_that_do_not_run(tmp_path: Path) -> None:
    """A line of a file that the main thread is not executing is not known to have run."""
    assert not has_run(Place(str(tmp_path / "script.py"), 1))


def test_a_file_that_is_executed_without_being_a_module(tmp_path: Path) -> None:
    """It counts as long as a thread executes its code."""
    file, found = tmp_path.resolve() / "script.py", []
    code = compile("def function():\n    look()\nfunction()\n", str(file), "exec")
    exec(code, {"look": lambda: found.append(is_executed(str(file)))})
    assert ([True], False) == (found, is_executed(str(file)))

"""Facts about the job's source: where it comes from, and what it shows about functions."""

import os

import pytest

from relay_client.pdb import debugger
from relay_client.pdb.debugger import Source, argument_names, function_lines, numbered
from relay_core.errors import RelayDebugError

CODE = """\
import os

def outer(a, /, b, *rest, c=1, **more):
    def inner():
        return a
    return inner

async def later(x):
    pass

top = lambda y: y
""".splitlines(keepends=True)


class Job:
    """Evaluates as the job would, and counts how often it is asked."""

    def __init__(self, value=None, error=None):
        self.asked = []
        self._value = value
        self._error = error

    async def evaluate(self, expression):
        self.asked.append(expression)
        if self._error:
            raise self._error
        return self._value if self._value is not None else eval(expression)


async def test_lines_come_from_the_job_once(tmp_path):
    """Lines and files are what the job's linecache has, and are asked for once."""
    path = tmp_path / "a'b.py"
    path.write_text("first\n    second\n\tthird")
    job = Job()
    source = Source(job.evaluate)
    assert await source.lines([(str(path), 2), (str(path), 9), ("<string>", 1)]) == ["second", "", ""]
    assert await source.lines([(str(path), 2)]) == ["second"]
    assert len(job.asked) == 1
    for _ in range(2):
        assert await source.file(str(path)) == ["first\n", "    second\n", "\tthird\n"]
    assert len(job.asked) == 2
    assert await source.lines([(str(path), 3), (str(path), 2)]) == ["third", "second"]
    assert len(job.asked) == 3


@pytest.mark.parametrize("job", [Job(error=RelayDebugError("it runs")), Job(value=7), Job(value=["too", "many"])])
async def test_local_file_where_the_job_cannot_say(tmp_path, job):
    """While the job runs a local file of the same name stands in, and is not kept."""
    path = tmp_path / "local.py"
    path.write_text("here\n")
    source = Source(job.evaluate)
    assert await source.lines([(str(path), 1)]) == ["here"]
    assert await source.file(str(path)) == ["here\n"]
    assert await source.file("/nowhere.py") == []
    assert len(job.asked) == 3


@pytest.mark.parametrize("path", ["/dev/zero", "fifo", ".", "large.py", "/proc/self/pagemap", "nul\0"])
async def test_local_files_that_are_not_read(tmp_path, monkeypatch, path):
    """What is not a regular file of limited size is not read, whatever path the job names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(debugger, "MAX_LOCAL_FILE", 5)
    os.mkfifo("fifo")
    (tmp_path / "large.py").write_text("here\n\n")
    source = Source(Job(error=RelayDebugError("it runs")).evaluate)
    assert [""] == await source.lines([(path, 1)])
    assert [] == await source.file(path)


async def test_a_path_of_another_machine_is_not_read(tmp_path):
    """A name that Windows reads from another machine is not read, also if a local file has it."""
    path = tmp_path / "local.py"
    path.write_text("here\n")
    source = Source(Job(error=RelayDebugError("it runs")).evaluate)
    assert [] == await source.file(f"/{path}")
    assert ["here\n"] == await source.file(str(path))


def test_numbered_lines():
    """Lines have their numbers, the current one an arrow; what lies outside is left out."""
    assert numbered(["a\n", "    b\n", "\n"], -3, 9, current=2) == ["  1    a", "  2 ->     b", "  3"]
    assert numbered([], 1, 5) == []


@pytest.mark.parametrize(
    ("line", "function"), [(1, (1, 11)), (3, (3, 6)), (5, (4, 5)), (6, (3, 6)), (9, (8, 9)), (11, (1, 11))]
)
def test_lines_of_a_function(line, function):
    """The innermost function around a line is found; outside of functions it is the whole file."""
    assert function_lines(CODE, line) == function


def test_names_of_arguments():
    """The parameters of the innermost function are named in their order, of all kinds."""
    assert argument_names(CODE, 3) == ["a", "b", "rest", "c", "more"]
    assert argument_names(CODE, 5) == []
    assert argument_names(CODE, 8) == ["x"]
    assert argument_names(CODE, 1) is None


def test_source_of_another_python():
    """What does not parse here has no functions."""
    assert function_lines(["def f(:\n", "  pass\n"], 2) == (1, 2)
    assert argument_names(["\0"], 1) is None
    assert argument_names(["-" * 200_000 + "1"], 1) is None

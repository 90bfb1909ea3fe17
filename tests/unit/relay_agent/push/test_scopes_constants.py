"""Facts about constants that a push does not set."""

import pytest

from relay_agent.push.new_file import NewFile
from relay_agent.push.old_file import OldFile
from tests.support.jobs.loaded_module import Load, Loaded, Result


def push_again(loaded: Loaded, pushed: str, source: str) -> Result:
    """Push a text after another one."""
    return loaded.push(source, OldFile(NewFile(pushed, str(loaded.path)), {}))


def source(rate: float) -> str:
    return f"LR = {rate}\ndef f(): return LR\n"


def test_unknown_value_has_a_line_in_each_push(load: Load, monkeypatch: pytest.MonkeyPatch):
    """A value that may be the file's or the process's stays so until a push has it, with the same line in each push."""
    loaded = load(source(0.7))
    monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0)
    assert "LR keeps 0.7; the file has 0.8" == loaded.push(source(0.8)).kept[0]
    for before, rate in ((0.8, 0.8), (0.8, 0.9)):
        assert ([], [f"LR keeps 0.7; the file has {rate}"]) == push_again(loaded, source(before), source(rate))
    assert ([], []) == push_again(loaded, source(0.9), source(0.7))
    assert (["LR = 0.6"], []) == push_again(loaded, source(0.7), source(0.6))
    assert 0.6 == loaded.f()


def test_value_of_the_process_has_a_line_in_each_push(load: Load):
    """A value that the process has assigned has a line as long as the file has another one than the file before."""
    loaded = load(source(0.1))
    loaded.module.LR = 5
    for before, rate in ((0.1, 0.2), (0.2, 0.2)):
        line = f"LR keeps the value assigned by the process; the file has {rate}"
        assert ([], [line]) == push_again(loaded, source(before), source(rate))
    assert ([], []) == push_again(loaded, source(0.2), source(0.1))


def test_push_that_is_cancelled(load: Load):
    """A push that was not committed does not count."""
    loaded = load(source(0.1))
    swap = loaded.swap(source(0.2))
    swap.prepare()
    swap.undo()
    assert ["LR = 0.2"] == loaded.push(source(0.2)).changed


def test_main_script(load: Load, monkeypatch: pytest.MonkeyPatch):
    """The top level of a file that is being executed shows what the file assigned, although it was edited since."""
    loaded = load("def f(): return 1\n")
    monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0)
    loaded.module.results = results = []
    loaded.module.push = lambda: results.append(loaded.push("LR = 0.8\ndef f(): return 1\n"))
    loaded.execute("LR = 0.7\ndef f(): return 1\npush()\n")
    assert (["LR = 0.8"], 0.8) == (results[0].changed, loaded.LR)


def test_name_that_is_assigned_twice(load: Load):
    """The last value in the file counts, in a module and in a class."""
    twice = "x = 1\nx = {}\nclass C:\n    x = 1\n    x = {}\n"
    loaded = load(twice.format(2, 2))
    assert ([], []) == loaded.push(twice.format(2, 2))
    assert (["x = 3", "C.x = 3"], []) == loaded.push(twice.format(3, 3))
    assert (3, 3) == (loaded.x, loaded.C.x)

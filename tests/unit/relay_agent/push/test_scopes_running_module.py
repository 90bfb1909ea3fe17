"""Facts about a push while the top level of the module is being executed, as at a breakpoint above its definitions."""

import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType

import pytest

from relay_agent.push.new_file import NewFile
from relay_agent.push.old_file import OldFile
from relay_agent.push.swap import Swap
from relay_core.errors import ConfigurationError
from tests.support.jobs.loaded_module import Load, Loaded, Result

REFUSED = "the top level of the file, now at model.py:{}, may still execute the old definition of {} in line {}"


def push_while_running(load: Load, source: str, new: str) -> tuple[Loaded, list[Result | str], list[set[str]]]:
    """Execute a text whose function `stop` pushes another one; return the outcomes, and the new names in the module."""
    loaded = load("")
    outcomes: list[Result | str] = []
    added: list[set[str]] = []

    def stop() -> None:
        before = {*vars(loaded.module)}
        try:
            outcomes.append(loaded.push(new))
        except ConfigurationError as error:
            outcomes.append(error.sentence)
        added.append({*vars(loaded.module)} - before)

    loaded.module.stop = stop  # type: ignore[attr-defined]
    loaded.execute(source)
    return loaded, outcomes, added


@pytest.mark.parametrize(
    ("source", "new", "expected"),
    [
        ("stop()\ndef f(): return 1\ndef g(): return 1\n", ("1", "2"), (1, "g", 3)),
        ("stop()\nclass A:\n    def f(self): return 1\n", ("1", "2"), (1, "A.f", 3)),
        ("stop()\nclass A:\n    rate = 1\n", ("1", "2"), (1, "A", 2)),
        ("stop()\nclass A(ValueError): pass\n", ("Value", "Type"), (1, "A", 2)),
        ("stop()\nf = lambda: 1\n", ("1", "2"), (1, "<lambda>", 2)),
        ("stop()\nimport json\n", ("json", "html as json"), (1, "json", 2)),
        ("stop()\nRATE = 1\n", ("1", "2"), (1, "RATE", 2)),
        ("stop()\ndef f(x=1): return x\n", ("1", "2"), (1, "f", 2)),
        ("def f(): return 1\nclass A:\n    stop()\n    def g(self): return 2\n", ("2", "3"), (2, "A", 2)),
        ("for _ in range(1):\n    def f(): return 1\n    stop()\n", ("1\n ", "2\n "), (3, "f", 2)),
        ("try:\n    stop()\nexcept KeyError:\n    def f(): return 1\n", ("1", "2"), (2, "f", 4)),
        ("if stop() or True:\n    def f(): return 1\n", ("1", "2"), (1, "f", 2)),
        ("def f(): return 1\nstop()\ndef f(): return 2\n", ("2", "3"), (2, "f", 3)),
        ("RATE = 1\nstop()\nRATE = 2\n", ("2", "3"), (2, "RATE", 3)),
    ],
)
def test_changed_definition_ahead(load: Load, source: str, new: tuple[str, str], expected: tuple[int, str, int]):
    """It refuses the push, because the old definition would replace the new one; nothing is executed or defined."""
    outcomes, added = push_while_running(load, source, source.replace(*new))[1:]
    assert ([REFUSED.format(*expected)], [set()]) == (outcomes, added)


def test_annotated_names(load: Load):
    """A top level with annotations, which Python 3.10 sets up by an instruction of its own, is read like any other."""
    source = "rate: int = 1\ndef f(): return 1\nstop()\n"
    _, outcomes, _ = push_while_running(load, source, source.replace("return 1", "return 2"))
    assert not isinstance(outcomes[0], str), outcomes


def test_what_to_do(load: Load):
    """The hint names the last line that has to be executed first."""
    loaded = load("")
    refused: list[ConfigurationError] = []

    def stop() -> None:
        with pytest.raises(ConfigurationError) as error:
            loaded.push("stop()\ndef f(): return 2\n")
        refused.append(error.value)

    loaded.module.stop = stop  # type: ignore[attr-defined]
    loaded.execute("stop()\ndef f(): return 1\n")
    assert "push again once it is past line 2 and any loop around it, or restart the job" == (refused[0].hint)


@pytest.mark.parametrize(
    "end",
    [
        "if __name__ == 'model':\n    main()\n",
        "for step in range(1):\n    main()\n    loss = step\n",
        "try:\n    main()\nfinally:\n    done = 1\n",
        "result = main()\nlater = sorted([1], key=lambda n: n)\n",
        "with open(__file__) as file:\n    main()\n",
    ],
)
@pytest.mark.parametrize("is_edited", [False, True])
def test_definitions_behind(load: Load, monkeypatch: pytest.MonkeyPatch, end: str, is_edited: bool):
    """A program that has executed its definitions gets new ones, whatever its top level does below them."""
    monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0 if is_edited else float("inf"))
    source = f"import json\nRATE = 1\nclass A: pass\ndef f(): return RATE\ndef main(): stop()\n{end}"
    new = source.replace("RATE = 1", "RATE = 2").replace("return RATE", "return -RATE")
    loaded, outcomes, added = push_while_running(load, source, new)
    assert (-2, [set()]) == (loaded.f(), added)
    assert isinstance(outcomes[0], Result)
    assert ["f()", "RATE = 2"] == outcomes[0].changed


def test_assignment_in_a_loop_ahead(load: Load):
    """A changed constant is pushed nevertheless; the loop assigns to it as before."""
    source = "RATE = 1\nfor _ in range(1):\n    stop()\n    RATE += 10\n"
    loaded, outcomes, _ = push_while_running(load, source, source.replace("= 1\n", "= 2\n"))
    assert isinstance(outcomes[0], Result)
    assert (["RATE = 2"], 12) == (outcomes[0].changed, loaded.RATE)


def test_second_module_of_the_file(load: Load):
    """A name that only the module with the running top level will define is missing in the other."""
    loaded, twin = load("def f(): return 1\n"), ModuleType("twin")
    exec(compile("def f(): return 1\n", str(loaded.path), "exec"), vars(twin))
    refused: list[str] = []

    def stop() -> None:
        new = NewFile("def f(): return model\nstop()\nmodel = [1]\n", str(loaded.path))
        swap = Swap([loaded.module, twin], new, OldFile.find(str(loaded.path), None, [loaded.f, twin.f]))
        with pytest.raises(ConfigurationError) as caught:
            swap.prepare()
        refused.append(str(caught.value))

    loaded.module.stop = twin.stop = stop  # type: ignore[attr-defined]
    loaded.execute("def f(): return 1\nstop()\nmodel = [1]\n")
    assert ["model" in text for text in refused] == [True]


@pytest.mark.parametrize("is_edited", [False, True])
def test_same_definition_ahead(load: Load, monkeypatch: pytest.MonkeyPatch, is_edited: bool):
    """It is left to the top level, which executes it once; new functions may use it."""
    monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0 if is_edited else float("inf"))
    later = "import json\nLIMIT = 3\n@calls.append\ndef plot(): return json, LIMIT\nmodel = [LIMIT]\n"
    source = f"calls = []\ndef f(): return 1\nstop()\n{later}"
    new = f"calls = []\ndef f(): return json, model\ndef g(): return LIMIT\n\nstop()\n{later}"
    loaded, outcomes, added = push_while_running(load, source, new)
    assert isinstance(outcomes[0], Result)
    assert (["f()", "g() (new)"], [{"g"}]) == (outcomes[0].changed, added)
    assert is_edited == any("may have changed" in text for text in outcomes[0].kept)
    assert (1, [3], 3) == (len(loaded.calls), loaded.f()[1], loaded.g())


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("f(): return 1", "f"),
        ("RATE = 1", "RATE"),
        ("class A: pass", "A"),  # its attributes and bases are unknown
    ],
)
def test_file_that_was_edited(load: Load, monkeypatch: pytest.MonkeyPatch, changed: str, expected: str):
    """If the loaded text is unknown, functions and constants are compared with the running code."""
    monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0)
    source = "stop()\ndef f(): return 1\nRATE = 1\n" + "class A: pass\n" * (expected == "A")
    assert changed in source
    outcomes = push_while_running(load, source, source.replace(changed, changed.replace("1", "2")))[1]
    assert [True] == [f"the old definition of {expected} in line " in str(outcome) for outcome in outcomes]


def test_line_that_is_executed_next(load: Load):
    """A debugger stops a thread before it executes a line, whose definition is then ahead."""
    loaded = load("")
    refused: dict[int, bool] = {}

    def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., object] | None:
        if (frame.f_code.co_name, frame.f_code.co_filename) != ("<module>", str(loaded.path)):
            return None
        if event in {"call", "line"}:
            try:
                loaded.swap("x = 1\ndef f(): return 2\ny = 1\n")
                refused[frame.f_lineno] = False
            except ConfigurationError:
                refused[frame.f_lineno] = True
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        loaded.execute("x = 1\ndef f(): return 1\ny = 1\n")
    finally:
        sys.settrace(before)
    refused.pop(0, None)  # the line of a call, from Python 3.11
    assert {1: True, 2: True, 3: False} == refused


def test_import_in_another_thread(load: Load):
    """The top level may be executed by any thread."""
    loaded = load("")
    reached, released = threading.Event(), threading.Event()
    loaded.module.stop = lambda: (reached.set(), released.wait())  # type: ignore[attr-defined]
    thread = threading.Thread(target=loaded.execute, args=("stop()\ndef f(): return 1\n",))
    thread.start()
    try:
        reached.wait()
        with pytest.raises(ConfigurationError, match="the old definition of f in line 2"):
            loaded.push("stop()\ndef f(): return 2\n")
    finally:
        released.set()
        thread.join()
    assert 1 == loaded.f()
    assert ["f()"] == loaded.push("stop()\ndef f(): return 2\n").changed

"""Facts about expressions that are evaluated in this process."""

import queue
import sys
import threading
from collections.abc import Iterator

import pytest

from relay_agent.stacks import evaluation as module
from relay_agent.stacks.evaluation import MAX_RUNNING, start_evaluation
from relay_core.agent_api.evaluation import PLAIN_READER, Evaluate, Selection, Value
from tests.support.jobs.helper_threads import no_thread_left
from tests.support.machine.deadline import DEADLINE

__all__ = ["no_thread_left"]

READ_SELF = f"{PLAIN_READER}(9, 'self', self"


@pytest.fixture(autouse=True)
def no_late_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """No evaluation of another test counts as running."""
    monkeypatch.setattr(module, "_late", [])


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Globals of the program; an event that is set at the end of the test."""
    event = threading.Event()
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "numbers", [1, 2, 3], raising=False)
    monkeypatch.setattr(main, "never", event, raising=False)
    yield event
    event.set()


def value_of(request: Evaluate) -> Value:
    """Evaluate as a process of a job does, where the main thread never is in relay_agent: it would count as held."""
    found: queue.SimpleQueue[Value] = queue.SimpleQueue()
    helper = threading.Thread(target=start_evaluation(request), args=(found.put,))
    helper.start()
    value = found.get(timeout=DEADLINE)
    helper.join(DEADLINE)
    return value


def test_globals_of_the_program(program: threading.Event):
    """A process that is running evaluates in `__main__`; comprehensions see its names."""
    value = value_of(Evaluate("[n * numbers[0] for n in numbers if n in numbers]", seconds=30))
    assert ("[1, 2, 3]", "__main__", "") == (value.text, value.place, value.error)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("missing", "NameError: name 'missing' is not defined"),
        ("1 +", "SyntaxError"),
        ("numbers = 4", "SyntaxError"),
        ("exit(3)", "SystemExit: 3"),
    ],
)
def test_errors(program: threading.Event, expression: str, error: str):
    """An expression that raises anything yields the exception in one line; statements are refused."""
    assert value_of(Evaluate(expression, seconds=30)).error.startswith(error)


class Outer:
    """Has what `self` does not have in the inner frame."""

    def __init__(self) -> None:
        self.parts = {"sampler": [3, 4]}

    def fit(self, request: Evaluate) -> Value:
        return Inner().step(request)


class Inner:
    """Is `self` in the innermost frame that has a `self`."""

    reads = 0

    @property
    def parts(self) -> object:
        self.reads += 1
        raise AttributeError("parts")

    def step(self, request: Evaluate) -> Value:
        factor = 2
        value = value_of(request)
        assert factor == 2
        assert self.reads == 0 or PLAIN_READER not in request.expression
        return value


@pytest.mark.parametrize(
    ("expression", "text", "function"),
    [
        ("[n * factor for n in (1, 2)]", "[2, 4]", "step"),
        ("factor + numbers[1]", "4", "step"),
        ("self.parts['sampler'][1]", "4", "fit"),
        (f"{PLAIN_READER}(9, 'self', self, ('attribute', 'parts'), ('element', 'sampler'))", "[3, 4]", "fit"),
        (
            f"{PLAIN_READER}(9, 'self', self, ('attribute', '__dict__'), ('element', 'parts'))",
            "{'sampler': [3, 4]}",
            "fit",
        ),
    ],
)
def test_variables_of_a_running_function(program: threading.Event, expression: str, text: str, function: str):
    """A name that is not global is a variable of the innermost function that has it, and in which the path exists."""
    value = Outer().fit(Evaluate(expression, seconds=30))
    assert (text, f"{function} test_evaluation_evaluate.py (running)", "") == (value.text, value.place, value.error)


def test_no_function_has_all_names(program: threading.Event):
    """A call is evaluated in one place only, and an expression with an unknown name in the globals of the program."""
    call = Outer().fit(Evaluate("dict.fromkeys(self.parts)", seconds=30))
    assert ("AttributeError", "step test_evaluation_evaluate.py (running)") == (call.error.split(":")[0], call.place)
    unknown = Outer().fit(Evaluate("factor + missing", seconds=30))
    assert ("NameError", "__main__") == (unknown.error.split(":")[0], unknown.place)


def test_slow_expression(program: threading.Event):
    """An expression that takes too long is given up, and not more than a few of them are left running."""
    late = {value_of(Evaluate("never.wait()", seconds=0.05)).error for _ in range(MAX_RUNNING)}
    assert {"the evaluation took longer than 0.05 s"} == late
    assert f"{MAX_RUNNING} earlier evaluations are still running" == value_of(Evaluate("1", seconds=30)).error


def test_path(program: threading.Event, monkeypatch: pytest.MonkeyPatch):
    """A path is read without calling the `__import__` that the job has defined."""
    monkeypatch.setattr(sys.modules["__main__"], "__import__", pytest.fail, raising=False)
    assert "2" == value_of(Evaluate(f"{PLAIN_READER}(9, 'numbers', numbers, ('element', 1))", seconds=30)).text


def test_comparison(program: threading.Event):
    """With a selection, the value is a checksum."""
    value = value_of(Evaluate("numbers", seconds=30, selection=Selection()))
    assert (1, "", "[1, 2, 3]") == (value.leaves, value.text, value.leaf.description if value.leaf else "")


def test_few_elements_are_shown():
    """An array of a few elements is shown by its contents, a large one by what it is."""
    expression = "[__import__('numpy').zeros(n) for n in (2, 200)]"
    assert "[array([0., 0.]), ndarray[200] float64]" == value_of(Evaluate(expression, seconds=30)).text


def test_bits_behind_equal_texts():
    """Values whose texts are equal have different checksums if their bits differ, and texts with all digits."""
    numpy = "__import__('numpy')"
    for part in ("array(0.1 + {})", "array([1.5, 0.1 + {}], 'float64')", "full(200, 0.1 + {})"):
        inside = f"(dict(a=[{numpy}.{part}]), 1)"
        found = [value_of(Evaluate(inside.format(more), seconds=30)) for more in ("0", "0", "1e-16")]
        assert found[0].text == found[2].text
        assert found[0] == found[1], "equal values are equal"
        assert found[0].digest != found[2].digest
        assert ("200" in part) == (found[0].in_full == found[2].in_full)
    assert ("({'a': [0.1 ndarray[] float64]}, 1)") == value_of(
        Evaluate(f"({{'a': [{numpy}.array(0.1)]}}, 1)", seconds=30)
    ).in_full.replace(" cpu", "")


def test_text_without_arrays_is_complete(program: threading.Event):
    """Numbers of Python have all digits in their text, so that no checksum is needed."""
    found = value_of(Evaluate("[0.1 + 1e-16, numbers]", seconds=30))
    assert ("[0.1000000000000001, [1, 2, 3]]", "", "") == (found.text, found.digest, found.in_full)

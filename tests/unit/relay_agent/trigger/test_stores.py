"""Facts about where values are stored, and what is reported when they change."""

from __future__ import annotations

import dataclasses
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay_agent.trigger.stores import DataBreakpoint, part, variable
from relay_agent.trigger.table import Watches
from relay_core.errors import ConfigurationError
from tests.support.jobs.loaded_module import Loaded

SOURCE = """\
state = {"rate": 1, 3: 4}

class Model:
    rate = 1
    __slots__ = ("empty", "__dict__", "__weakref__")

def attribute(model, value):
    model.rate = value

def other(model, value):
    model.other = value
    return model.rate

def inner(model):
    def store(value):
        model.rate = value
    return store

def element(owner, value):
    owner["rate"] = value

def remove(model):
    del model.rate

def end(model, value):
    model.rate = value
    raise KeyError

def bind(value):
    global state
    state = value

def slow(model, call):
    call()
    model.rate = model.rate
"""
LONG = f"'{'x' * 79}"
CUT = f"{LONG}... by attribute train.py:8"
Watch = Callable[..., list[str]]


@pytest.fixture
def train(tmp_path: Path) -> Loaded:
    """The module."""
    loaded = Loaded(tmp_path / "train.py")
    loaded.execute(SOURCE)
    return loaded


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watches a value, and returns the list to which each change adds a reason."""
    watches = Watches()

    def start(stored: Any, condition: str = "") -> list[str]:
        reasons: list[str] = []
        breakpoint_ = DataBreakpoint(stored, condition, lambda _frame, reason, _is_returning: reasons.append(reason))
        watches.set_others(breakpoint_.hooks)
        return reasons

    yield start
    watches.set_others(tuple)


def attribute_of(owner: Any, name: str = "rate") -> Any:
    return part(owner, "model", name, sys._getframe(1))


def test_functions_in_which_an_attribute_is_compared(train: Loaded) -> None:
    """They contain a store to such a name, or are being executed."""
    codes = attribute_of(train.Model()).codes()
    names = [code.co_name for code in codes if code.co_filename == str(train.path)]
    assert ["attribute", "end", "remove", "slow", "store"] == sorted(names)
    assert sys._getframe().f_code in codes


def test_functions_in_which_an_element_is_compared(train: Loaded) -> None:
    """They store any element, and are not installed."""
    codes = part(train.state, "state", "'rate'", sys._getframe()).codes()
    assert ["element"] == [code.co_name for code in codes if code.co_filename == str(train.path)]
    assert not [code for code in codes if "site-packages" in code.co_filename]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda train, model: train.attribute(model, 2), ["model.rate changed 1 -> 2 by attribute train.py:8"]),
        (lambda train, model: train.attribute(model, 1), []),
        (lambda train, model: train.attribute(model, 1.0), ["model.rate changed 1 -> 1.0 by attribute train.py:8"]),
        (lambda train, model: train.attribute(train.Model(), 2), []),
        (lambda train, model: train.attribute(model, LONG[1:] * 2), [f"model.rate changed 1 -> {CUT}"]),
        (lambda train, model: train.remove(model), ["model.rate was deleted by remove train.py:23"]),
        (lambda train, model: train.inner(model)(3), ["model.rate changed 1 -> 3 by inner.<locals>.store train.py:16"]),
    ],
)  # fmt: skip
def test_change(train: Loaded, watch: Watch, change: Callable[..., object], expected: list[str]) -> None:
    """A value of another type or bit pattern is a change, one of another object is none."""
    model = SimpleNamespace(rate=1)
    reasons = watch(attribute_of(model))
    change(train, model)
    if sys.version_info < (3, 11):  # which does not name the functions around it
        expected = [each.replace("inner.<locals>.", "") for each in expected]
    assert expected == reasons


def test_change_elsewhere(train: Loaded, watch: Watch) -> None:
    """It is found in the next function in which the value is compared, before the line that is next there."""
    model = SimpleNamespace(rate=1)
    reasons = watch(attribute_of(model))
    vars(model).update(rate=2)
    threading.Thread(target=train.attribute, args=(train.Model(), 3)).start()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    assert all(reason.startswith("model.rate changed 1 -> 2 ") for reason in reasons)
    assert 1 == len(reasons)


def test_change_by_another_thread(train: Loaded, watch: Watch) -> None:
    """It is not attributed to the thread that stops."""
    model = SimpleNamespace(rate=1)
    reasons = watch(attribute_of(model))
    changed, seen = threading.Event(), threading.Event()

    def other() -> None:
        train.attribute(train.Model(), 1)
        seen.set()
        changed.wait()

    thread = threading.Thread(target=other)
    thread.start()
    seen.wait()
    vars(model).update(rate=2)
    train.attribute(train.Model(), 3)
    changed.set()
    thread.join()
    assert 1 == len(reasons)
    assert " by attribute" not in reasons[0]


def test_change_during_a_line_that_stores_nothing(train: Loaded, watch: Watch) -> None:
    """Another thread may have made it, so the line is named as a time."""
    model = SimpleNamespace(rate=1)
    reasons = watch(attribute_of(model))
    train.slow(model, lambda: vars(model).update(rate=2))
    assert ["model.rate changed 1 -> 2 during slow train.py:34"] == reasons


def test_call_that_an_exception_has_left(train: Loaded, watch: Watch) -> None:
    """Its last line did not make what is found at the beginning of the next call."""
    model = SimpleNamespace(rate=1)
    reasons = watch(dataclasses.replace(attribute_of(model), running=()))
    with pytest.raises(KeyError):
        train.end(train.Model(), 5)
    vars(model).update(rate=2)
    with pytest.raises(KeyError):
        train.end(train.Model(), 5)
    assert ["model.rate changed 1 -> 2 before end train.py:26"] == reasons


def test_large_number(train: Loaded, watch: Watch) -> None:
    """Python refuses to write it as text; it is compared nevertheless."""
    model = SimpleNamespace(rate=10**5000)
    reasons = watch(attribute_of(model))
    train.attribute(model, 10**5000)
    assert [] == reasons
    train.attribute(model, 10**5000 + 1)
    assert 1 == len(reasons)


def test_what_is_kept_in_memory(train: Loaded) -> None:
    """A value that was offered keeps neither the call in which it was found nor its variables."""

    def call() -> tuple[Any, Any]:
        large = train.Model()
        return part(train.state, "state", "'rate'", sys._getframe()), weakref.ref(large)

    stored, large = call()
    gc.collect()
    assert large() is None
    assert 1 == stored.read()


def test_secret(train: Loaded, watch: Watch) -> None:
    """It is hidden."""
    model = SimpleNamespace(rate="a")
    reasons = watch(attribute_of(model))
    train.attribute(model, "https://user:hunter2@example.test/")
    assert ["model.rate changed 'a' -> *** by attribute train.py:8"] == reasons


def test_attribute_of_the_class(train: Loaded, watch: Watch) -> None:
    """A store in the instance hides it; its value before is that of the class."""
    model = train.Model()
    reasons = watch(attribute_of(model))
    train.attribute(model, 2)
    train.remove(model)
    found = ["changed 1 -> 2 by attribute train.py:8", "changed 2 -> 1 by remove train.py:23"]
    assert [f"model.rate {text}" for text in found] == reasons


def test_attribute_of_the_class_changes(train: Loaded, watch: Watch) -> None:
    """The value of an instance that has none of its own changes with it, also if a base class has it."""
    derived = type("Derived", (train.Model,), {})
    for owner in (derived(), derived):
        train.Model.rate = 1
        reasons = watch(attribute_of(owner))
        train.attribute(train.Model, 2)
        assert ["model.rate changed 1 -> 2 by attribute train.py:8"] == reasons


def test_dict_of_attributes_that_is_replaced(train: Loaded, watch: Watch) -> None:
    """The attribute is read from the new one."""
    model = train.Model()
    model.rate = 1
    reasons = watch(attribute_of(model))
    model.__dict__ = {"rate": 1}
    train.attribute(model, 2)
    assert ["model.rate changed 1 -> 2 by attribute train.py:8"] == reasons


def test_attribute_that_c_computes() -> None:
    """It is stored nowhere."""
    array = pytest.importorskip("numpy").zeros(3)
    with pytest.raises(TypeError, match="code in C computes it"):
        part(array, "array", "shape", sys._getframe())


def test_condition(train: Loaded, watch: Watch) -> None:
    """It is evaluated in the function that has changed the value."""
    model = SimpleNamespace(rate=1)
    reasons = watch(attribute_of(model), "value > 2")
    train.attribute(model, 2)
    train.attribute(model, 3)
    assert ["model.rate changed 2 -> 3 by attribute train.py:8"] == reasons


@pytest.mark.parametrize(
    ("owner", "name", "expected"),
    [
        ((1, 2), "0", LookupError),
        ([1], "len()", ValueError),
        ([1], "1", IndexError),
        ({"a": 1}, "a", LookupError),
        ({"a": 1, 2.5: 1}, "'a'", TypeError),
        (SimpleNamespace(), "rate", LookupError),
        (threading.Thread(), "name", TypeError),
    ],
)
def test_part_that_is_not_stored(owner: Any, name: str, expected: type[Exception]) -> None:
    """It cannot be watched: it does not exist, or the job's code computes it."""
    with pytest.raises(expected):
        part(owner, "owner", name, sys._getframe())


def test_parameter_of_a_module(train: Loaded, watch: Watch) -> None:
    """It is read from the module's table, and may be replaced."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)

    def reset(model: Any) -> None:
        model.weight = torch.nn.Parameter(torch.zeros(1, 2))

    reasons = watch(part(model, "model", "weight", sys._getframe()))
    reset(model)
    assert [True] == [reason.startswith("model.weight changed Parameter containing: tensor([[") for reason in reasons]


def test_variable() -> None:
    """Local variables need Python 3.12; names in the body of a class cannot be watched."""
    local = 1
    frame = sys._getframe()
    if sys.version_info >= (3, 12):
        assert local == variable(frame, "local", is_global=False).read()
    else:
        with pytest.raises(ConfigurationError, match="local variables are watched from Python 3.12 on"):
            variable(frame, "local", is_global=False)
    assert variable(frame, "SOURCE", is_global=True).read() is SOURCE
    with pytest.raises(ConfigurationError, match="names in the body of a class are not watched"):

        class _Body:
            variable(sys._getframe(), "name", is_global=False)


def test_push(train: Loaded, watch: Watch) -> None:
    """While a push replaces code, nothing is watched; then the new code is, with the value that it finds."""
    watches = Watches()
    model = SimpleNamespace(rate=1)
    reasons: list[str] = []
    breakpoint_ = DataBreakpoint(attribute_of(model), "", lambda _frame, reason, _is_returning: reasons.append(reason))
    try:
        watches.set_others(breakpoint_.hooks)
        watches.pause("push", 60)
        train.attribute(model, 2)
        train.execute(SOURCE.replace("model.other = value", "model.rate = value"))
        watches.resume("push")
        train.other(model, 3)
    finally:
        watches.set_others(tuple)
    assert ["model.rate changed 2 -> 3 by other train.py:11"] == reasons

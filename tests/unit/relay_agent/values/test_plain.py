"""Facts about copying a value into built-in types without executing code of the job."""

from collections import OrderedDict, defaultdict
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest

from relay_agent.values import plain
from relay_agent.values.contents import fingerprint, in_full
from relay_agent.values.plain import read_plain
from relay_agent.values.presentation import short_repr
from relay_core.agent_api.evaluation import Selection


def trap(name: str) -> Any:
    def method(*_arguments: object) -> Any:
        raise AssertionError(f"{name} was executed")

    return method


class Trap:
    """An object with an attribute; showing, iterating or comparing it executes code."""

    def __init__(self) -> None:
        vars(self)["step"] = 3

    __repr__ = __str__ = __eq__ = trap("a method")
    __hash__ = object.__hash__


class TrapDict(dict[Any, Any]):
    __iter__ = items = keys = __repr__ = __getitem__ = trap("a method of a dict")


class TrapList(list[Any]):
    __iter__ = __len__ = __repr__ = __getitem__ = trap("a method of a list")


class TrapSet(set[Any]):
    __iter__ = __len__ = __repr__ = trap("a method of a set")


class TrapText(str):
    __slots__ = ()
    __repr__ = __str__ = __hash__ = __eq__ = trap("a method of a text")


class TrapNumber(int):
    __repr__ = __str__ = __int__ = __index__ = __hash__ = __eq__ = trap("a method of a number")


class TrapArray(np.ndarray):
    __repr__ = __array_finalize__ = trap("a method of an array")


class TrapMeta(type):
    __eq__ = __hash__ = trap("a method of a class")


class TrapClass(metaclass=TrapMeta):
    def __init__(self) -> None:
        self.step = 3


class Color(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: object


class Module:
    """What `torch.nn.Module` consists of."""

    __repr__ = named_parameters = trap("a method of a module")

    def __init__(self, **modules: object) -> None:
        tables = {"_parameters": {"weight": np.ones(2)}, "_buffers": {}, "_modules": modules}
        vars(self).update(tables)


SHOWN = [
    ({"a": (1, 2.5, None, b"x", ...)}, "{'a': (1, 2.5, None, b'x', Ellipsis)}"),
    (TrapDict(a=TrapList([1, TrapText("<b>")])), "{'a': [1, '<b>']}"),
    (OrderedDict(defaultdict(list, a=[TrapNumber(3)])), "{'a': [3]}"),
    ([TrapSet({1}), frozenset({2}), Color.RED, Point(1, "y")], "[{1}, frozenset({2}), Color.RED, Point(x=1, y='y')]"),
    ([Trap(), Trap, len], "[Trap(step=3), <class Trap>, <function len>]"),
    ([np.float32(1.5), np.zeros(2)], "[np.float32(1.5), array([0., 0.])]"),
    (np.array([Trap()]), "ndarray[1] object"),
    (np.zeros(2).view(np.ndarray), "array([0., 0.])"),
    (Module(layer=Module()), "{'layer': Module 0 parameters eval, 'weight': array([1., 1.])}"),
    ([[[[[[1]]]]]], "[[[[...]]]]"),
    ({Trap(): 1}, "{Trap(step=3): 1}"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN, ids=[text for _, text in SHOWN])
def test_shown(value: object, text: str):
    """A value is shown without a method of the job, and an object of the job by its class and attributes."""
    assert text == short_repr(read_plain(101, "x", value))


def test_array_of_the_job():
    """An array of a class of the job is described, because its class may change how it is shown."""
    TrapArray.__array_finalize__ = lambda *_arguments: None  # type: ignore[method-assign]  # else numpy cannot make one
    assert "<TrapArray object>" == short_repr(read_plain(101, "x", np.zeros(2).view(TrapArray)))


@pytest.mark.parametrize("base", [object, np.ndarray])
def test_class_that_claims_to_be_of_a_library(base: type):
    """A class of the job is not shown by its own methods, whatever it calls itself and its module."""
    members = {"__module__": "numpy", "__repr__": trap("repr"), "dtype": property(trap("dtype"))}
    kind = type("ndarray", (base,), members)
    value = kind(3) if base is np.ndarray else kind()
    assert "<ndarray object>" == short_repr(read_plain(4, "x", value))


def test_methods_of_a_metaclass():
    """Neither an object's class nor the class of its class's `__dict__` is compared or hashed."""
    assert "TrapClass(step=3)" == short_repr(read_plain(101, "x", TrapClass()))
    hidden = type("Hidden", (), {"__dict__": TrapClass()})
    assert "<Hidden object>" == short_repr(read_plain(101, "x", hidden()))


def test_steps():
    """The path is read first."""
    assert [1] == read_plain(101, "x", TrapDict(a=TrapList([[1]])), ("element", "a"), ("element", 0))


def test_width(monkeypatch: pytest.MonkeyPatch):
    """Only so many elements of a container are copied, and only so many in all."""
    assert [[0, 1], [0, 1]] == read_plain(2, "x", [range_list(5)] * 3)
    monkeypatch.setattr(plain, "MAX_SHOWN", 4)
    assert "[[0, 1], ...]" == short_repr(read_plain(2, "x", [range_list(5)] * 3))


def range_list(count: int) -> list[int]:
    return list(range(count))


def test_compared():
    """A copy for a comparison is complete, and has the leaves of the value."""
    model = read_plain(None, "x", Module(layer=Module()))
    assert 2 == fingerprint(model, Selection(), 1e9).leaves
    assert 200 == len(read_plain(None, "x", range_list(200)))


def test_not_compared(monkeypatch: pytest.MonkeyPatch):
    """An object of the job is refused with its attributes, because a comparison could not see what differs."""
    with pytest.raises(TypeError, match="class Trap would execute code; compare one of its attributes: step"):
        read_plain(None, "x", {"a": [Trap()]})
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(LookupError, match="too many parts"):
        read_plain(None, "x", endless)
    monkeypatch.setattr(plain, "MAX_PARTS", 4)
    for large in ([[1, 2], [3, 4], [5]], [0] * 5, dict.fromkeys(range(5))):
        with pytest.raises(LookupError, match="too many parts"):
            read_plain(None, "x", large)
    assert [0] * 4 == read_plain(None, "x", [0] * 4)


def test_secrets(monkeypatch: pytest.MonkeyPatch):
    """A text that is a secret by its path, its form or the environment is not shown, but compared."""
    monkeypatch.setenv("MY_TOKEN", "in-the-environment")
    config = {"password": "one", "url": "https://me:two@host", "other": "in-the-environment", "rate": 0.1}
    shown = "{'other': ***, 'password': ***, 'rate': 0.1, 'url': ***}"
    assert shown == short_repr(read_plain(101, "config", config))
    assert "***" == short_repr(read_plain(101, "config", config, ("element", "password")))
    assert "***" == short_repr(read_plain(101, "password", "one"))
    assert config == read_plain(None, "config", config)


def test_attributes_with_arrays():
    """Objects whose arrays differ have different checksums."""
    first, second = (in_full(read_plain(101, "x", Point(1, np.full(64, value)))) for value in (1.0, 2.0))
    assert "" != first[1] != second[1]

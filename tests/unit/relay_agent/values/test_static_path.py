"""Facts about reading attributes and elements without executing code of the job."""

import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relay_agent.values.static_path import read_path


class Base:
    __slots__ = ("__dict__",)
    kind = "base"


class Traps(Base):
    """Each way in which access to a value may execute code; a test fails if one of them does."""

    __slots__ = ("slot",)

    def __init__(self):
        self.plain = [1, (2, 3)]
        self.slot = "slot"

    @property
    def computed(self):
        raise AssertionError("a property was executed")

    def __getattr__(self, name):
        raise AssertionError("__getattr__ was executed")

    def __getitem__(self, key):
        raise AssertionError("__getitem__ was executed")

    def method(self):
        raise AssertionError("a method was executed")


class Everywhere:
    def __getattribute__(self, name):
        raise AssertionError("__getattribute__ was executed")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((), None),
        ((("attribute", "plain"), ("element", 1), ("element", -1)), 3),
        ((("attribute", "slot"),), "slot"),
        ((("attribute", "kind"),), "base"),
    ],
)
def test_data_is_read(steps: tuple[tuple[str, Any], ...], expected: object):
    """Instance and class attributes, slots, and elements of lists and tuples are read."""
    value = Traps()
    assert (expected if steps else value) == read_path(value, *steps)


@pytest.mark.parametrize(
    ("name", "key", "expected"), [("layers", 1, 1), ("layers", -2, 0), ("blocks", 0, 1), ("named", "first", 0)]
)
def test_elements_of_torch_modules(name: str, key: int | str, expected: int):
    """Those of ModuleList, Sequential and ModuleDict are submodules, which are read without their `__getitem__`."""
    nn = pytest.importorskip("torch", reason="torch is not installed").nn
    first, second = nn.Linear(1, 1), nn.Linear(2, 2)
    model = nn.Module()
    model.layers, model.blocks = nn.ModuleList([first, second]), nn.Sequential(second)
    model.named = nn.ModuleDict({"first": first})
    assert read_path(model, ("attribute", name), ("element", key)) is (first, second)[expected]
    with pytest.raises(LookupError, match="has no attribute '7'"):
        read_path(model, ("attribute", name), ("element", 7))


@pytest.mark.parametrize(
    "step", [("attribute", "computed"), ("attribute", "method"), ("attribute", "__class__"), ("element", 0)]
)
def test_code_is_not_executed(step: tuple[str, Any]):
    """What would execute code is refused, with the reason."""
    with pytest.raises(TypeError, match="would execute code"):
        read_path(Traps(), step)


class Key:
    """A key of a dictionary, in the same place as another one."""

    def __init__(self, like: object):
        self.like = like

    def __hash__(self):
        return hash(self.like)

    def __eq__(self, other):
        compared.append(other)
        return False


compared: list[object] = []
"""What keys were compared with, here also while the dictionaries below are filled."""


class Meta(type):
    def __getattribute__(cls, name):
        raise AssertionError("__getattribute__ of a metaclass was executed")


def by_meta() -> type:
    """Return a class that exists only in a test, because pytest reads attributes of all classes in this module."""

    class ByMeta(metaclass=Meta):
        x = 1

        def __init__(self):
            self.y = 2

    return ByMeta


def of_meta() -> object:
    return by_meta()()


class Disguised(dict):
    """A dictionary whose class is computed, and so are its attributes."""

    def __getattribute__(self, name):
        raise AssertionError("__getattribute__ was executed")

    @property
    def __class__(self):
        raise AssertionError("__class__ was executed")

    @property
    def __dict__(self):
        raise AssertionError("__dict__ was executed")


class DisguisedNumber:
    @property
    def __class__(self):
        raise AssertionError("__class__ was executed")


def with_key_in_attributes() -> object:
    value = Traps()
    vars(value)[Key("b")] = 1
    value.b = 2
    return value


def with_key_in_class() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.13 warns of such a class
        return type("Made", (), {Key("b"): 1, "b": 2})


@pytest.mark.parametrize(
    ("make", "step", "expected"),
    [
        (lambda: {Key("b"): 1, "b": 2}, ("element", "b"), 2),
        (lambda: {Key(7): 1, 7: 2}, ("element", 7), 2),
        (by_meta, ("attribute", "x"), 1),
        (of_meta, ("attribute", "x"), 1),
        (of_meta, ("attribute", "y"), 2),
        (lambda: Disguised(a=1), ("element", "a"), 1),
        (with_key_in_attributes, ("attribute", "b"), 2),
        (with_key_in_class, ("attribute", "b"), 2),
        (lambda: {True: "one"}, ("element", 1), "one"),
    ],
)
def test_classes_that_execute_code_everywhere(make: Callable[[], object], step: tuple[str, Any], expected: object):
    """Neither a key's `__eq__`, nor a metaclass, nor a computed `__class__` or `__dict__` is executed."""
    value = make()
    compared.clear()
    assert (expected, []) == (read_path(value, step), compared)


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (lambda: {Key("a"): 1}, ("element", "a")),
        (by_meta, ("attribute", "z")),
        (of_meta, ("attribute", "z")),
        (lambda: Disguised(a=1), ("attribute", "a")),
        (lambda: Disguised(a=1), ("element", "b")),
        (DisguisedNumber, ("attribute", "a")),
        (DisguisedNumber, ("attribute", "__class__")),
        (DisguisedNumber, ("element", 0)),
        (of_meta, ("element", 0)),
    ],
)
def test_refusals_execute_nothing(make: Callable[[], object], step: tuple[str, Any]):
    """Where nothing can be read, the error itself executes none of this code either."""
    value = make()
    compared.clear()
    with pytest.raises((LookupError, TypeError), match=r"no attribute|no key|would execute code"):
        read_path(value, step)
    assert [] == compared


def test_attributes_that_are_not_set():
    """An empty slot is a missing attribute; an `AttributeError` could call `__dir__` when it is shown."""
    value = Traps()
    del value.slot
    with pytest.raises(LookupError, match="no attribute 'slot'"):
        read_path(value, ("attribute", "slot"))


@pytest.mark.parametrize("kind", [Traps, Everywhere])
def test_missing_attribute(kind: type):
    """A missing attribute is an error, and nobody's `__getattr__` is called for it."""
    with pytest.raises(LookupError, match="no attribute 'missing'"):
        read_path(kind(), ("attribute", "missing"))


def test_dictionary_with_defaults():
    """Reading a missing key inserts nothing."""
    value = defaultdict(list, present=1)
    assert 1 == read_path(value, ("element", "present"))
    with pytest.raises(LookupError, match="no key 'absent'"):
        read_path(value, ("element", "absent"))
    assert ["present"] == list(value)


def test_metadata_of_arrays():
    """The shape of an array is read; that of a subclass, which may compute it, is not."""
    assert (2, 3) == read_path(np.zeros((2, 3)), ("attribute", "shape"))

    class Mine(np.ndarray):
        pass

    with pytest.raises(TypeError, match="reading 'shape' of Mine would execute code"):
        read_path(np.zeros(2).view(Mine), ("attribute", "shape"))


def test_parameters_of_modules():
    """Parameters and submodules, which torch finds by `__getattr__`, are found in its tables."""

    class Module:
        def __init__(self):
            self._modules = {}
            self._parameters = {"weight": [1.5]}

    outer = Module()
    outer._modules["fc"] = Module()
    steps = (("attribute", "fc"), ("attribute", "weight"), ("element", 0))
    assert 1.5 == read_path(outer, *steps)

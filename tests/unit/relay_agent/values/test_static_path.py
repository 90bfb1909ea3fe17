"""Facts about reading attributes and elements without executing code of the job."""

from collections import defaultdict
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
    "step", [("attribute", "computed"), ("attribute", "method"), ("attribute", "__class__"), ("element", 0)]
)
def test_code_is_not_executed(step: tuple[str, Any]):
    """What would execute code is refused, with the reason."""
    with pytest.raises(TypeError, match="would execute code"):
        read_path(Traps(), step)


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

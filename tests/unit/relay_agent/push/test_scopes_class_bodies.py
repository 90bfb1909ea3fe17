"""Facts about classes whose bodies are interpreted by a metaclass, a base class or a decorator."""

import sys

import pytest

from tests.support.jobs.loaded_module import Load

IMPORTS = """\
import abc, ctypes, dataclasses, enum, typing
import attrs, pydantic
from typing import ClassVar, NamedTuple
T = typing.TypeVar("T")
class Registered:
    def __init_subclass__(cls): dataclasses.dataclass(cls)
class Singleton(type):
    def __call__(cls): return super().__call__()
def instance(cls): return cls()
"""
KEPT = "class X keeps its members: {} cannot be added, changed or removed in a running process"
INTERPRETED = {
    "Enum": ("class X(enum.Enum):\n    A = 1\n    B = 2", "[*X]"),
    "IntEnum": ("class X(enum.IntEnum):\n    A = 1\n    B = 2", "[*X], X(1) == 1"),
    "str Enum": ("class X(str, enum.Enum):\n    A = '1'\n    B = '2'", "[*X], X('1').value"),
    "Flag": ("class X(enum.Flag):\n    A = 1\n    B = 2", "X.A | X.B, X(3)"),
    "NamedTuple": ("class X(NamedTuple):\n    A: int = 1\n    B: int = 2", "X(), X._fields, X.A"),
    "dataclass": ("@dataclasses.dataclass\nclass X:\n    A: int = 1\n    B: int = 2", "X(), X.A"),
    "dataclass with slots": (
        "@dataclasses.dataclass(slots=True, frozen=True)\nclass X:\n    A: int = 1\n    B: int = 2",
        "X(), vars(X).keys()",
    ),
    "dataclass of a base class": ("class X(Registered):\n    A: int = 1\n    B: int = 2", "X(), X.A"),
    "attrs": ("@attrs.define\nclass X:\n    A: int = 1\n    B: int = 2", "X(), vars(X).keys()"),
    "pydantic": ("class X(pydantic.BaseModel):\n    A: int = 1\n    B: int = 2", "X(), vars(X).keys()"),
    "Structure": (
        "class X(ctypes.Structure):\n    A = 1\n    B = 2\n    _fields_ = [('n', ctypes.c_int)]",
        "X(1).n, ctypes.sizeof(X), X.A, X.B",
    ),
}
if sys.version_info >= (3, 11):
    INTERPRETED["StrEnum"] = ("class X(enum.StrEnum):\n    A = '1'\n    B = '2'", "[*X], X('1').value")
MEMBER = ("C = 4", "C: int = 4")
KINDS = pytest.mark.parametrize("kind", [*INTERPRETED])


@KINDS
def test_members_stay_and_methods_change(load: Load, kind: str):
    """New and removed members have one line and no other effect; methods change, and unchanged members have no line."""
    definition, state = INTERPRETED[kind]
    source = f"{IMPORTS}{definition}\n    def show(self): return 'old'\n"
    more = source.replace("    def show", f"    {MEMBER[': int' in definition]}\n    def show")
    loaded = load(source)
    before = repr(eval(state, vars(loaded.module)))
    assert (["X.show()"], []) == loaded.push(source.replace("old", "new"))
    assert "new" == loaded.X.show(None)
    loaded.path.write_text(source)
    assert (["X.show()"], [KEPT.format("C")]) == loaded.push(more)
    loaded.path.write_text(more)
    assert ([], [KEPT.format("C")]) == loaded.push(more)  # no push has added it
    assert ([], [KEPT.format("B")]) == loaded.push(source.replace("    B", "    # B"))
    assert ([], []) == loaded.push(source)
    assert before == repr(eval(state, vars(loaded.module)))


@pytest.mark.parametrize(
    "header",
    [
        "class X",
        "class X(abc.ABC)",
        "class X(typing.Generic[T])",
        "class X(typing.Protocol)",
        "class X(metaclass=Singleton)",
        "class X(Registered)",
        "@typing.final\nclass X",
        "@dataclasses.dataclass\nclass X",
        "@dataclasses.dataclass(slots=True)\nclass X",
        "class X(NamedTuple)",
    ],
)
def test_constants_change_where_nothing_interprets_them(load: Load, header: str):
    """A constant without an annotation is replaced, added and reported as removed in all other classes."""
    body = "\n    K = 1\n    GONE = 2\n    class Inner:\n        M = 1\n    def f(self): return 1\n"
    loaded = load(f"{IMPORTS}{header}:{body}")
    result = loaded.push(f"{IMPORTS}{header}:{body}".replace("K = 1", "K = 3\n    L = 4").replace("    GONE = 2\n", ""))
    assert (3, 4, 1) == (loaded.X.K, loaded.X.L, loaded.X.Inner.M)
    assert (["X.K = 3", "X.L = 4"], ["X.GONE was removed from the file, but remains in the process"]) == result


def test_annotated_constants(load: Load):
    """An annotated constant of a plain class is a constant, and so is a class variable of a dataclass."""
    source = IMPORTS + (
        "class A:\n    rate: float = 0.1\n    def f(self): return self.rate\n"
        "@dataclasses.dataclass\nclass B:\n    rate: ClassVar[float] = 0.1\n    name: 'ClassVar' = 'b'\n"
        "    x: int = 1\n"
    )
    loaded = load(source)
    result = loaded.push(source.replace("0.1", "0.2").replace("'b'", "'c'"))
    assert (0.2, 0.2, "c") == (loaded.A().f(), loaded.B.rate, loaded.B.name)
    assert (["A.rate = 0.2", "B.rate = 0.2", "B.name = 'c'"], []) == result


def test_order_of_fields(load: Load):
    """Fields in another order are named, because the parameters of `__init__` keep their order."""
    loaded = load(IMPORTS + "@dataclasses.dataclass\nclass X:\n    a: int\n    b: int\n    c: int\n")
    assert [KEPT.format("a, b")] == loaded.push(
        IMPORTS + "@dataclasses.dataclass\nclass X:\n    b: int\n    a: int\n    c: int\n"
    ).kept


def test_new_methods(load: Load):
    """Ordinary methods are added to classes with a metaclass; methods that mean something to it are not."""
    source = f"{IMPORTS}class X(enum.Enum):\n    A = 1\n    def f(self): return 1\n"
    loaded = load(source)
    result = loaded.push(
        f"{source}    def _g(self): return self.f() + 1\n    @property\n    def h(self): return 3\n"
        "    @classmethod\n    def _missing_(cls, value): return cls.A\n    @enum.nonmember\n    class Y: pass\n"
    )
    assert (2, 3, ["A"]) == (loaded.X.A._g(), loaded.X.A.h, [each.name for each in loaded.X])
    assert (["X._g() (new)", "X.h() (new)"], [KEPT.format("_missing_, Y")]) == result
    with pytest.raises(ValueError, match="5 is not a valid X"):
        loaded.X(5)


def test_class_inside_members(load: Load):
    """A class in the body of a model belongs to its definition: its constants were read when the model was created."""
    source = IMPORTS + "class M(pydantic.BaseModel):\n    class X:\n        extra = 1\n        def f(self): return 1\n"
    loaded = load(source)
    result = loaded.push(source.replace("extra = 1", "extra = 2").replace("return 1", "return 2"))
    assert (1, 2) == (loaded.M.X.extra, loaded.M.X().f())
    assert (["M.X.f()"], [KEPT.replace("X", "M.X").format("extra")]) == result


def test_what_a_decorator_has_returned(load: Load):
    """If a decorator has replaced the class, it is not executed again; only its methods change."""
    source = (
        f"{IMPORTS}@instance\nclass X:\n    K = 1\n    def f(self): return 1\n"
        "class Outer:\n    @instance\n    class X:\n        def f(self): return 1\n"
    )
    loaded = load(source)
    objects = loaded.X, loaded.Outer.X
    result = loaded.push(source.replace("K = 1", "K = 2").replace("return 1", "return 2"))
    assert objects == (loaded.X, loaded.Outer.X)
    assert (1, 2, 2) == (loaded.X.K, loaded.X.f(), loaded.Outer.X.f())
    assert (["X.f()", "Outer.X.f()"], [KEPT.format("K")]) == result


def test_changed_header(load: Load):
    """If the base class changes as well as a member, one line has both."""
    loaded = load(f"{IMPORTS}class X(enum.Enum):\n    A = 1\n")
    result = loaded.push(f"{IMPORTS}class X(enum.IntEnum):\n    A = 1\n    B = 2\n")
    what = "base classes, metaclass and decorators, and the members B,"
    assert ([], [f"class X keeps its layout: {what} cannot be changed in a running process"]) == result


def test_file_that_is_not_known(load: Load, monkeypatch: pytest.MonkeyPatch):
    """If the text that was loaded is unknown, members are not compared with the process; one line has the classes."""
    source = IMPORTS + "class X(enum.Enum):\n    A = 1\n@dataclasses.dataclass\nclass Y:\n    a: int = 1\n    K = 1\n"
    loaded = load(source)
    monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0)
    result = loaded.push(source.replace("A = 1", "A = 1\n    B = 2").replace("int = 1", "int = 2"))
    assert (["A"], 1, []) == ([each.name for each in loaded.X], loaded.Y().a, result.changed)
    assert ["the values of T, class X, class Y were not compared"] == [
        line.partition(", and ")[2] for line in result.kept
    ]


def test_typed_dict(load: Load):
    """A new key of a TypedDict has a line: its annotations, which libraries read, stay as they are."""
    source = f"{IMPORTS}class X(typing.TypedDict):\n    a: int\n"
    loaded = load(source)
    assert ([], [KEPT.format("b")]) == loaded.push(f"{source}    b: int\n")
    assert ["a"] == [*loaded.X.__annotations__]

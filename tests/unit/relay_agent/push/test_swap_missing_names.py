"""Facts about functions that use what a push cannot add."""

import pytest

from relay_core.errors import ConfigurationError
from tests.support.jobs.loaded_module import Load

IMPORTS = "import dataclasses, enum, typing\n"
REFUSED = {
    "member of an Enum": ("class X(enum.Enum):\n    A = 1\n    {}", "B = 2", "X.B", "X.B"),
    "field": ("@dataclasses.dataclass\nclass X:\n    a: int = 1\n    {}", "b: int = 2", "X().b", "X.b"),
    "parameter": ("@dataclasses.dataclass\nclass X:\n    a: int = 1\n    {}", "b: int = 2", "X(b=1)", "X.b"),
    "slot": ("class X:\n    __slots__ = ('a'{})", ", 'b'", "setattr(X(), 'a', X().b)", "X.b"),
    "attribute": ("class X:\n    a = list()\n    {}", "b = list()", "X.b", "X.b"),
    "global name": ("x = list()\n{}", "y = list()", "y", "y"),
    "conditional name": ("x = list()\n{}", "if x is not None:\n    y = 1", "[y for _ in '1']", "y"),
}


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("kind", [*REFUSED])
def test_use_of_what_cannot_be_added(load: Load, monkeypatch: pytest.MonkeyPatch, kind: str, is_known: bool):
    """The whole push is refused, and neither the function nor anything else in the file has changed."""
    definition, addition, use, name = REFUSED[kind]
    old, new = (f"{IMPORTS}{definition.format(text)}\n" for text in ("", addition))
    loaded = load(f"{old}def f(): return 0\ndef g(): return 0\n")
    before = {*vars(loaded.module)} | {"__builtins__"}
    if not is_known:
        monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0)
    swap = loaded.swap(f"{new}def f(): return {use}\ndef g(): return 1\nNEW = 1\n")
    with pytest.raises(ConfigurationError) as caught:
        swap.prepare()
    assert f"f() uses {name}, which cannot be added to a running process" == caught.value.sentence
    assert (0, 0, before) == (loaded.f(), loaded.g(), {*vars(loaded.module)} | {"__builtins__"})


def test_use_in_a_new_method(load: Load):
    """A new method that uses a new member is refused as well, because the job may find it by its name."""
    source = f"{IMPORTS}class X(enum.Enum):\n    A = 1\n"
    with pytest.raises(ConfigurationError, match=r"X\.f\(\) uses X\.B"):
        load(source).push(f"{source}    B = 2\n    def f(self): return self is X.B\n")


@pytest.mark.parametrize("is_known", [True, False])
def test_uses_that_work(load: Load, monkeypatch: pytest.MonkeyPatch, is_known: bool):
    """Existing members, names that the running function uses, and keys of dictionaries do not refuse a push."""
    source = (
        f"{IMPORTS}class M(enum.Enum):\n    A = 1\n@dataclasses.dataclass\nclass X:\n    a: int\n"
        "class T(typing.TypedDict):\n    k: int\nx = list()\ndef f(o): return o.b\n"
    )
    loaded = load(source)
    if not is_known:
        monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0)
    new = source.replace("a: int\n", "a: int\n    b: int = 1\n").replace("k: int", "k: int\n    l: int")
    loaded.push(new.replace("return o.b", "return o.b, M.A, X(a=1).a, T(l=1), x"))
    found = loaded.f(type("Other", (), {"b": 2}))
    assert (2, loaded.M.A, 1, {"l": 1}, []) == found


@pytest.mark.parametrize(
    ("addition", "use"),
    [("", "K"), ("", "[K for _ in '1']"), ("del x", "K"), ("a, K = 1, 2", "K"), ("from math import *", "tau")],
)
def test_use_of_an_undefined_name(load: Load, addition: str, use: str):
    """A new use of a name that nothing defines refuses the push, also if the file binds it in a way that is not run."""
    loaded = load("x = list()\ndef f(): return x\n")
    with pytest.raises(ConfigurationError, match=r"f\(\) uses (K|tau), which would stay undefined"):
        loaded.push(f"x = list()\n{addition}\ndef f(): return x, {use}\n")
    assert [] == loaded.f()


DEFINED = {
    "in the process": ("", "def f(): return LIVE"),
    "builtin": ("", "def f(): return len('ab'), __name__"),
    "used before": ("def f(): return later", "def f(): return later, 1"),
    "assigned by a function": ("", "def g():\n    global K\n    K = 1\ndef f(): return K"),
    "new": ("", "import colorsys\nN = 1\nclass C: pass\ndef f(): return colorsys, N, C, h()\ndef h(): return f"),
    "local": ("", "def f():\n    class A:\n        b = 1\n        c = b\n    return [A for k in '1' if k]"),
    "function that the process does not have": ("", "if False:\n    def g(): return K\ndef f(): return 1"),
}


@pytest.mark.parametrize("kind", [*DEFINED])
def test_use_of_a_name_that_may_be_defined(load: Load, kind: str):
    """Names of the process, the file and builtins, and names that old code used or a function assigns, are accepted."""
    old, new = DEFINED[kind]
    loaded = load(old or "def f(): return 0\n")
    loaded.module.LIVE = 1
    assert "f()" in loaded.push(new).changed

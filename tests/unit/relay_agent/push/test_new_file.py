"""Facts about the new content of a file."""

import ast

import pytest

from relay_agent.push.new_file import NewFile, constant

SOURCE = """\
@decorated
def f(): return lambda: 1

class A:
    class B:
        async def g(self):
            def h(): pass
"""


def test_qualified_names():
    """Each function is known by the qualified name that Python gives it."""
    file = NewFile(SOURCE, "a.py")
    assert ["A.B.g", "A.B.g.<locals>.h", "f", "f.<locals>.<lambda>"] == sorted(file.functions)
    assert "g" == file.functions["A.B.g"][0].node.name


def test_byte_order_mark():
    """A file that begins with one is Python."""
    assert ["f"] == [*NewFile("\ufeffdef f(): pass", "a.py").functions]


@pytest.mark.parametrize("source", ["def f(:", "\0", "def f():\nreturn 1"])
def test_text_that_is_not_python(source: str):
    """It raises an exception before anything is executed."""
    with pytest.raises((SyntaxError, ValueError)):
        NewFile(source, "a.py")


@pytest.mark.parametrize(
    ("text", "expected"), [("-1", (-1,)), ("(1, 'a')", ((1, "a"),)), ("None", (None,)), ("[]", None), ("f()", None)]
)
def test_constants(text: str, expected: object):
    """Immutable literals are constants; lists and calls are not."""
    assert expected == constant(ast.parse(text, mode="eval").body)


def test_statements_run_with_the_names_of_the_module():
    """What statements bind is separate from the module's names, but functions use those."""
    names: dict[str, object] = {"__name__": "m", "x": 1}
    found: dict[str, object] = {}
    file = NewFile("from __future__ import annotations\ndef f() -> missing: return x\n", "a.py")
    file.run(file.tree.body[1:], names, found)
    assert ["f"] == [*found]
    assert "f" not in names
    names["x"] = 2
    assert 2 == found["f"]()  # type: ignore[operator]

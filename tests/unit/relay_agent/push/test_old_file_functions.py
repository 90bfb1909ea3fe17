"""Facts about functions of the same name, and about code that does the same."""

from relay_agent.push.new_file import NewFile
from relay_agent.push.old_file import has_same_lines, is_equivalent, pair


def codes(source: str, name: str) -> list:
    """Return the code objects of a name."""
    return [found.code for found in NewFile(source, "a.py").functions[name]]


def test_equivalent_code():
    """Code in other lines does the same; another constant, name or nested function does not."""
    (one,) = codes("def f(x):\n    return [y + 1 for y in x]\n", "f")
    (moved,) = codes("\n\n\ndef f(x):\n\n    return [y + 1 for y in x]\n", "f")
    (other,) = codes("def f(x):\n    return [y + 2 for y in x]\n", "f")
    (same_value,) = codes("def f(x):\n    return [y + True for y in x]\n", "f")
    assert (True, False, False) == (
        is_equivalent(one, moved),
        is_equivalent(one, other),
        is_equivalent(one, same_value),
    )


def test_same_lines():
    """Lines of nested functions count, too."""
    source = "def f():\n    def g():\n        return 1\n    return g\n"
    (one,) = codes(source, "f")
    (same,) = codes(f"{source}# end\n", "f")
    (moved,) = codes(source.replace("        return", "\n        return"), "f")
    assert (True, False) == (has_same_lines(one, same), has_same_lines(one, moved))


def test_functions_of_one_name():
    """They are paired in the order of the file, or by their parameters if their number changes, or not at all."""
    two = "class C:\n    @property\n    def x(self): return 1\n    @x.setter\n    def x(self, value): pass\n"
    three = f"{two}    @x.deleter\n    def x(self): return 2\n"
    new = NewFile(two, "a.py").functions["C.x"]
    old = codes(two, "C.x")
    assert [new[0], new[1]] == [pair(old, new)[id(code)] for code in old]
    getter, setter = old
    paired = pair(old, NewFile(three, "a.py").functions["C.x"])
    assert (False, True) == (id(getter) in paired, id(setter) in paired)

"""Facts about code that is replaced in a module of this process."""

import functools

import pytest

from tests.support.jobs.loaded_module import THREADS, Load, Result

UNKNOWN = (
    "the file on the node may have changed since the process loaded it: decorators, base classes and existing "
    "imports{} were not compared"
)


def test_function_changes_in_place(load: Load):
    """Every reference to a function executes the new code; defaults and docstring are new, mutable defaults stay."""
    loaded = load("def f(x, y=1, cache=[], *, z=2):\n    'old'\n    cache.append(x)\n    return x + y + z\n")
    f = loaded.f
    partial = functools.partial(f, 1)
    f(0)
    result = loaded.push(
        "\n\ndef f(x, y=10, cache=[], *, z=20):\n    'new'\n    cache.append(x)\n    return x - y - z\n"
    )
    assert (-29, "new", 3, (10, [0, 1], 20)) == (
        partial(),
        f.__doc__,
        f.__code__.co_firstlineno,
        (*f.__defaults__, f.__kwdefaults__["z"]),
    )
    assert Result(["f()"], []) == result


def test_instances_keep_their_class_and_state(load: Load):
    """Methods, properties and nested classes change for existing instances; new methods may use `super()`."""
    loaded = load(
        "class Base:\n    def f(self): return 1\n"
        "class Net(Base):\n    rate = 1\n"
        "    def __init__(self): self.w = 3\n"
        "    @property\n    def name(self): return 'old'\n"
        "    def g(self): return 1\n"
        "    class Inner:\n        def h(self): return 1\n"
    )
    net, inner = loaded.Net(), loaded.Net.Inner()
    result = loaded.push(
        "class Base:\n    def f(self): return 2\n"
        "class Net(Base):\n    rate = 2\n    extra = 5\n"
        "    def __init__(self): self.w = 4\n"
        "    @property\n    def name(self): return 'new'\n"
        "    @name.setter\n    def name(self, value): self.w = value\n"
        "    def f(self): return super().f() + 10\n"
        "    def g(self): return super().f() + self.w\n"
        "    class Inner:\n        def h(self): return 2\n        def new(self): return __class__\n"
    )
    assert (12, 5, "new", 2, 2, 5) == (net.f(), net.g(), net.name, inner.h(), net.rate, net.extra)
    net.name = 7
    assert (7, loaded.Net.Inner, "Net.Inner.new") == (net.w, inner.new(), loaded.Net.Inner.new.__qualname__)
    assert type(net) is loaded.Net
    assert [] == result.kept
    assert {"Net.f() (new)", "Net.g()", "Net.Inner.new() (new)", "Net.rate = 2"} <= {*result.changed}


def test_new_names_and_kept_values(load: Load):
    """New functions, classes, imports and constants are added; a value that the process has changed stays."""
    loaded = load("RATE = 0.1\nsteps = 0\nstate = {}\ndef f(): return RATE\n")
    loaded.module.steps = 812
    loaded.state["x"] = 1
    result = loaded.push(
        "import colorsys\nRATE = 0.2\nsteps = 1\nstate = {}\nNEW = 3\n"
        "class C:\n    value = NEW\n"
        "def g(): return NEW, colorsys.__name__\n"
        "def f(): return RATE, g(), C.value\n"
    )
    assert (0.2, (3, "colorsys"), 3) == loaded.f()
    assert (812, {"x": 1}) == (loaded.steps, loaded.state)
    assert ["steps keeps the value assigned by the process; the file has 1"] == result.kept
    assert {"import colorsys (new)", "RATE = 0.2", "NEW = 3", "class C (new)", "g() (new)", "f()"} == {*result.changed}


def test_what_cannot_be_replaced(load: Load):
    """Closures, decorators, layouts, removed names and other statements stay as they are, and each has a sentence."""
    loaded = load(
        "import functools\n"
        "def make(n):\n    def inner(): return n\n    return inner\n"
        "@functools.cache\ndef cached(): return 1\n"
        "class A:\n    __slots__ = ('x',)\n"
        "class B(A): pass\n"
        "def gone(): return 1\n"
        "LIMIT = 3\n"
        "value = list()\n"
    )
    inner, cached = loaded.make(5), loaded.cached
    result = loaded.push(
        "import functools\n"
        "def make(n):\n    m = 1\n    def inner(): return n + m\n    return inner\n"
        "@functools.lru_cache(3)\ndef cached(): return 2\n"
        "class A:\n    __slots__ = ('x', 'y')\n"
        "class B: pass\n"
        "value = list((1, 2))\n"
    )
    assert (5, 6, 2, []) == (inner(), loaded.make(5)(), cached(), loaded.value)
    closure = "make.<locals>.inner() is now a closure over different outer variables (m, n instead of n)"
    assert {
        f"{closure}: existing closures keep the old code",
        "cached() keeps its old decorators: decorators are not executed again",
        "class A keeps its members: __slots__ cannot be added, changed or removed in a running process",
        "class B keeps its layout: base classes, metaclass and decorators cannot be changed in a running process",
        "gone() was removed from the file, but remains in the process",
        "LIMIT was removed from the file, but remains in the process",
        "line 11 is not executed again: value = list((1, 2))",
    } == {*result.kept}


def test_calls_in_progress(load: Load):
    """A call in progress and a suspended generator execute their old code until they return, and are named."""
    loaded = load("def f(push):\n    push()\n    return 'old'\ndef g():\n    yield 1\n    yield 'old'\n")
    generator = loaded.g()
    next(generator)
    results: list[Result] = []
    source = "def f(push):\n    push()\n    return 'new'\ndef g():\n    yield 1\n    yield 'new'\n"
    assert "old" == loaded.f(lambda: results.append(loaded.push(source)))
    assert ("old", "new", "new") == (next(generator), loaded.f(lambda: None), [*loaded.g()][1])
    assert [
        "f() is running at model.py:2 in MainThread: this call executes the old code until it returns",
        "g() is suspended at model.py:5: this call executes the old code until it returns",
    ] == results[0].kept


def test_call_in_progress_is_named_by_each_push(load: Load):
    """A call that executes older code than the file's is named by each push, also by one that changes nothing else."""
    source = "def f(push):\n    push()\n    return 0\ndef g(): return 0\n"
    loaded = load(source)
    results: list[Result] = []

    def push() -> None:
        for old, new in ("g(): return 0", "g(): return 1"), ("return 0", "return 2"), ("return 2", "return 3"):
            nonlocal source
            source = source.replace(old, new)
            results.append(loaded.push(source))
        results.append(loaded.push(source))

    assert 0 == loaded.f(push)
    note = "f() is running at model.py:2 in MainThread: this call executes the old code until it returns"
    assert [0, 1, 1, 1, 0] == [result.kept.count(note) for result in (*results, loaded.push(source))]


def test_call_in_progress_of_the_same_code(load: Load):
    """A call is not named if the file again has the code that it executes."""
    source = "def f(push):\n    push()\n    return 0\n"
    loaded = load(source)
    kept: list[str] = []
    loaded.f(lambda: kept.extend(str(loaded.push(each).kept) for each in (source.replace("0", "1"), source)))
    assert [True, False] == ["f() is running at model.py:2" in each for each in kept]


def test_failed_definition_leaves_nothing(load: Load):
    """A new name that cannot be defined removes those before it, and the next push adds all of them."""
    loaded = load("class Net:\n    pass\ndef f(): return 1\n")
    new = "class Net:\n    def more(self): return NEW\nNEW = 2\ndef f(): return g()\ndef g(): return 3\n"
    before = {*vars(loaded.module)}
    swap = loaded.swap(f"{new}@missing\ndef h(): pass\n")
    with pytest.raises(NameError, match="missing"):
        swap.prepare()
    del swap
    assert (before, 1) == ({*vars(loaded.module)} - {"__builtins__"} | (before & {"__builtins__"}), loaded.f())
    loaded.push(new)
    assert (3, 2) == (loaded.f(), loaded.Net().more())


def test_wrapped_functions(load: Load):
    """A decorator's wrapper and the function that it wraps both change; neither is executed again."""
    loaded = load(
        "import functools\ncalls = []\n"
        "def traced(f):\n    calls.append(f)\n    @functools.wraps(f)\n    def wrapper(): return 'old', f()\n"
        "    return wrapper\n"
        "@traced\ndef f(): return 1\n"
    )
    f = loaded.f
    result = loaded.push(
        "import functools\ncalls = []\n"
        "def traced(f):\n    calls.append(f)\n    @functools.wraps(f)\n    def wrapper(): return 'new', f()\n"
        "    return wrapper\n"
        "@traced\ndef f(): return 2\n"
    )
    assert (("new", 2), 1, []) == (f(), len(loaded.calls), result.kept)


def test_only_lines_moved(load: Load):
    """If only lines move, nothing is listed as changed, and tracebacks name the new lines."""
    loaded = load("def f(): raise ValueError\n")
    swap = loaded.swap("# comment\n\ndef f(): raise ValueError\n")
    assert {} == swap.functions
    swap.prepare()
    swap.commit(THREADS)
    assert ([], 3, False) == (swap.changed, loaded.f.__code__.co_firstlineno, swap.is_empty)


def test_same_text(load: Load):
    """The text that runs is an empty swap, also if a module-level comment is added; a moved inner line is not."""
    source = "def f():\n    def g():\n        return 1\n    return g\n"
    loaded = load(source)
    assert [True, True, False] == [
        loaded.swap(text).is_empty
        for text in (source, f"{source}# end\n", source.replace("        return", "\n        return"))
    ]


def test_file_on_disk_is_another_one(load: Load):
    """If the file on disk is not what runs, a changed constant is not applied: its value may be state."""
    loaded = load("RATE = 0.1\ndef f(): return 1\n")
    loaded.path.write_text("RATE = 0.1\ndef other(): return 5\ndef f(x): return 7\n")
    result = loaded.push("RATE = 0.2\ndef f(): return 2\n")
    assert (0.1, 2) == (loaded.RATE, loaded.f())
    assert ["RATE keeps 0.1; the file has 0.2", UNKNOWN.format("")] == result.kept


def test_file_that_was_saved_after_the_start(load: Load, monkeypatch: pytest.MonkeyPatch):
    """If the job's file itself was edited, each constant with another value is listed, and names not compared."""
    loaded = load("SCALE = 3.0\nSAME = 1\nnet = list()\nsize = object()\ndef f(): return SCALE\ndef g(): return 1\n")
    monkeypatch.setattr("relay_agent.push.old_file.start_time", lambda: 0.0)
    new = "SCALE = 5.0\nSAME = 1\nnet = list()\nsize = 4\ndef f(): return SCALE + 1\ndef g(): return 1\n"
    loaded.path.write_text(new)
    result = loaded.push(new)
    assert (4.0, ["f()"]) == (loaded.f(), result.changed)
    assert [
        "SCALE keeps 3.0; the file has 5.0",
        "size keeps an object of type object; the file has 4",
        UNKNOWN.format(", and the values of net"),
    ] == result.kept


def test_default_that_cannot_be_computed(load: Load):
    """A function whose new default raises an exception keeps its code; a new parameter may use names of the class."""
    loaded = load("def f(x): return 1\nclass C:\n    size = 3\n    def g(self): return 1\n")
    result = loaded.push("def f(x, y=missing): return 2\nclass C:\n    size = 3\n    def g(self, n=size): return n\n")
    assert (1, 3) == (loaded.f(0), loaded.C().g())
    assert ["f() keeps its old code: a default value cannot be computed: NameError: name 'missing' is not defined"] == (
        result.kept
    )

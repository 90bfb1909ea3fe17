"""Facts about short texts of any value: large ones, and what interrupts their computation."""

import signal
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relay_agent.values import elements, presentation
from relay_agent.values.presentation import MAX_ASKED, short_repr

MANY = 200_000
FEW_BYTES = 2_000_000
"""More than the text of any value needs, and less than the text of all of a large one."""


class Limit(Exception):
    """What a signal handler of the job raises, such as a time limit."""


@pytest.fixture
def interrupt() -> Iterator[Callable[..., Any]]:
    """A function that has a signal handler raise `Limit`."""

    def handler(*_: object) -> None:
        raise Limit

    def raise_signal(*_: object) -> Any:
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    yield raise_signal
    signal.signal(signal.SIGUSR1, before)


class Key:
    """A key or element without an order."""

    def __lt__(self, other: object) -> bool:
        raise ValueError

    def __repr__(self) -> str:
        return "key"


@pytest.mark.parametrize("method", ["__repr__", "__lt__"])
@pytest.mark.parametrize("build", [dict.fromkeys, set, frozenset, lambda keys: [defaultdict(int, dict.fromkeys(keys))]])
def test_signal_handler(
    build: Any, method: str, interrupt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a signal handler of the job raises while a value is shown reaches the caller."""
    value = build([Key(), Key()])
    monkeypatch.setattr(Key, method, interrupt)
    if method == "__lt__" and isinstance(value, list):
        assert "[defaultdict({key: None, key: None})]" == short_repr(value)  # which is not sorted
    else:
        with pytest.raises(Limit):
            short_repr(value)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_signal_handler_while_memory_is_read(
    library: str, interrupt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes the time in which the elements of an array are read."""
    imported = pytest.importorskip(library, reason=f"{library} is missing: make extras installs it")
    monkeypatch.setattr(elements, "_read", interrupt)
    with pytest.raises(Limit):
        presentation.ShortRepr(MAX_ASKED).repr(imported.ones(2))


def test_hostile_values() -> None:
    """A `repr` that raises is replaced, and keys without an order are shown in that of the dict."""

    class Hostile:
        def __repr__(self) -> str:
            raise ValueError

    assert short_repr(Hostile()).startswith("<Hostile instance at 0x")
    assert "{key: 1, key: 2}" == short_repr({Key(): 1, Key(): 2})
    assert "[{1, 2}, frozenset({3}), set(), frozenset()]" == short_repr([{2, 1}, frozenset({3}), set(), frozenset()])


class Config(dict[Any, Any]):
    """A dict of the job, whose methods must not be called."""

    def items(self) -> Any:
        raise SystemExit

    keys = values = __iter__ = __len__ = __getitem__ = items


NUMBERS = dict.fromkeys(range(MANY), 1)
LARGE = [
    (bytes(50_000_000), "b'\\x00\\x00", "\\x0..."),
    (bytearray(50_000_000), "bytearray(b'\\x00", "\\..."),
    (NUMBERS, "{0: 1, 1: 1, ", "99: 1, ...}"),
    (NUMBERS.keys(), "dict_keys([0, 1, ", "99, ...])"),
    (NUMBERS.values(), "dict_values([1, 1, ", "1, ...])"),
    (NUMBERS.items(), "dict_items([(0, 1), ", "(99, 1), ...])"),
    (OrderedDict(NUMBERS), "OrderedDict({0: 1, ", "99: 1, ...})"),
    (defaultdict(int, NUMBERS), "defaultdict({0: 1, ", "99: 1, ...})"),
    (Counter(NUMBERS), "Counter({0: 1, ", "99: 1, ...})"),
    (Config(NUMBERS), "Config({0: 1, ", "99: 1, ...})"),
    (set(range(MANY)), "{0, 1, ", "99, ...}"),
    (deque(range(MANY)), "deque([0, 1, ", "99, ...])"),
    (memoryview(bytes(MANY)), "<memory at 0x", ">"),
    (1 << 4_000_000, "0x10000", "0000..."),
]


@pytest.mark.parametrize(("value", "first", "last"), LARGE, ids=lambda each: type(each).__name__)
def test_large_value(value: object, first: str, last: str) -> None:
    """Of a large value, only the part that is shown becomes text, and no method of the job is called."""
    tracemalloc.start()
    try:
        text = short_repr(value)
        assert tracemalloc.get_traced_memory()[1] < FEW_BYTES
    finally:
        tracemalloc.stop()
    assert text.startswith(first)
    assert text.endswith(last)
    assert len(text) <= MAX_ASKED


def test_order() -> None:
    """Keys of a dict are in order if there are few enough to sort them; an ordered dict keeps its own order."""
    assert "{1: 'b', 2: 'a'}" == short_repr({2: "a", 1: "b"})
    assert "OrderedDict({2: 'a', 1: 'b'})" == short_repr(OrderedDict({2: "a", 1: "b"}))


@pytest.mark.parametrize("sign", [1, -1])
def test_integer(sign: int) -> None:
    """An integer is shown in decimal digits, or in hexadecimal ones if Python may refuse to show it."""
    small, large = sign * (10**639 - 1), sign * 10**640
    assert [str(small), hex(large)] == [short_repr(small), short_repr(large)]


def test_parts_are_described() -> None:
    """A tensor in a dict subclass, such as the state of a module, is described as anywhere else."""
    torch = pytest.importorskip("torch", reason="torch is missing: make extras installs it")
    assert "OrderedDict({'weight': Tensor[8, 8] float32 cpu})" == short_repr(
        torch.nn.Linear(8, 8, bias=False).state_dict()
    )


def graph_without_and_with(function: Callable[[Any], object]) -> list[str]:
    """Return the kinds of the operations that `torch.jit.trace` records, without and with a call on a tensor."""
    torch = pytest.importorskip("torch", reason="torch is missing: make extras installs it")

    def traced(call: Callable[[Any], object]) -> str:
        def forward(value: Any) -> Any:
            call(value)
            return value * 2

        graph = torch.jit.trace(forward, torch.ones(3), check_trace=False).graph
        return " ".join(node.kind() for node in graph.nodes())

    return [traced(lambda _: None), traced(function)]


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_traced_tensor() -> None:
    """What is shown of a tensor while `torch.jit.trace` records adds nothing to the graph and warns of nothing."""
    texts: list[str] = []
    without, shown = graph_without_and_with(lambda value: texts.append(short_repr([value])))
    assert without == shown
    assert ["[tensor([1., 1., 1.])]"] == texts


def test_symbolic_tracing() -> None:
    """A proxy of `torch.fx` is shown by its name, and adds nothing to the graph."""
    torch = pytest.importorskip("torch", reason="torch is missing: make extras installs it")
    texts: list[str] = []

    class Net(torch.nn.Module):  # type: ignore[misc] # its base is of type Any
        def forward(self, value: Any) -> Any:
            texts.append(short_repr({"value": value}))
            return value * 2

    graph = torch.fx.symbolic_trace(Net()).graph
    assert ["placeholder", "call_function", "output"] == [node.op for node in graph.nodes]
    assert ["{'value': Proxy(value)}"] == texts


def test_symbolic_shape() -> None:
    """Showing a tensor with a symbolic shape adds no condition to what torch compiles."""
    pytest.importorskip("torch", reason="torch is missing: make extras installs it")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    shapes = ShapeEnv()
    tensor = FakeTensorMode(shape_env=shapes).from_tensor(torch.ones(3))
    before = len(shapes.guards)
    assert short_repr(tensor).startswith("FakeTensor[s")
    assert before == len(shapes.guards)


def test_nothing_is_saved_for_the_backward_pass() -> None:
    """Showing a tensor with gradients records no operation, so that activation checkpointing counts the same ones."""
    torch = pytest.importorskip("torch", reason="torch is missing: make extras installs it")
    saved: list[Any] = []
    tensor = torch.ones(3, requires_grad=True) * 2
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda _: None):
        assert "tensor([2., 2., 2.], grad_fn=<MulBackward0>)" == short_repr(tensor)
        assert "Tensor[50] float32 cpu grad" == short_repr(torch.ones(50, requires_grad=True))
    assert [] == saved

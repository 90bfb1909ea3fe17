"""Facts about helper threads that read values for another thread, with a stand-in for a GPU that is behind."""

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

from relay_agent.values.contents import compute_statistics
from relay_agent.values.deadline import TooLate, call_within, within_deadline
from relay_agent.values.presentation import short_repr
from relay_agent.values.torch_state import CAPTURE, as_stopped_thread, remembered_while_stopped
from tests.support.machine.deadline import DEADLINE

torch = pytest.importorskip("torch")
tree_map_only = pytest.importorskip("torch.utils._pytree").tree_map_only


def state() -> tuple[Any, ...]:
    """Return what torch keeps for this thread."""
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *autocast


def test_state_of_the_calling_thread() -> None:
    """A helper thread has the gradients, inference mode and autocast of its caller, and then its own ones again."""
    fresh = call_within(DEADLINE, state)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        assert (False, False, True, torch.float16, False) == call_within(DEADLINE, state)
    with torch.inference_mode():
        assert state() == call_within(DEADLINE, state)
    assert fresh == call_within(DEADLINE, state) == state()


CAPTURE_ERROR = "CUDA error: operation would make the legacy stream depend on a capturing blocking stream"
"""Of the question whether a stream is being captured."""


class Cuda(types.SimpleNamespace):
    """`torch.cuda` of a process whose GPU is behind: a tensor has its new elements after `synchronize`."""

    def __init__(self) -> None:
        super().__init__(graph=types.SimpleNamespace(default_capture_stream=None))
        self.current = "default"
        self.capturing = ""
        self.waits: list[Any] = []
        self.error = ""
        self.reserved = [0, 0, 2**20, 0]
        self.elements = torch.zeros(1000)

    def is_initialized(self) -> bool:
        return True

    def current_stream(self) -> str:
        return self.current

    @contextlib.contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def device_count(self) -> int:
        return len(self.reserved)

    def memory_reserved(self, device: int) -> int:
        return self.reserved[device]

    @contextlib.contextmanager
    def device(self, device: int) -> Iterator[None]:
        self.current = f"default of {device}"
        yield
        self.current = "default"

    def is_current_stream_capturing(self) -> bool:
        if self.error == CAPTURE_ERROR:
            raise RuntimeError(self.error)
        return self.current == self.capturing

    def synchronize(self, device: Any) -> None:
        self.waits.append(device)
        if self.error:
            raise RuntimeError(self.error)
        self.elements.fill_(1)


class OnGpu(torch.Tensor):
    """A tensor that torch takes for one on a GPU, as DTensor does with its local part."""

    @staticmethod
    def __new__(cls: Any, elements: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, elements.shape, dtype=elements.dtype, device="cuda:0")
        made.elements = elements
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*tree_map_only(OnGpu, lambda part: part.elements, args), **(kwargs or {}))
        is_copied = "device" in (kwargs or {})  # to the CPU
        return found if is_copied else tree_map_only(torch.Tensor, OnGpu, found)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    stand_in = Cuda()
    monkeypatch.setattr(torch, "cuda", stand_in)
    monkeypatch.setitem(sys.modules, "torch.cuda", stand_in)
    return stand_in


@pytest.fixture
def late(cuda: Cuda) -> Any:
    """A tensor of ones, as soon as the GPU has filled it."""
    return OnGpu(cuda.elements)


def test_elements_are_read_after_the_wait(cuda: Cuda, late: Any) -> None:
    """A helper thread waits for the whole device before it reads an element there, once."""
    assert (1000, []) == (call_within(DEADLINE, late.numel), cuda.waits)
    assert [1000.0, 1000.0] == call_within(DEADLINE, lambda: [late.sum().item(), torch.stack([late]).sum().item()])
    assert [torch.device("cuda:0")] == cuda.waits


def test_elements_on_the_cpu_need_no_wait(cuda: Cuda, late: Any) -> None:
    """Neither the elements of a tensor on the CPU nor the description of one on a GPU wait for the device."""
    assert 3 == call_within(DEADLINE, lambda: torch.ones(3).sum().item())
    assert "[OnGpu[1000] float32 cuda:0]" == call_within(DEADLINE, lambda: short_repr([late]))
    assert [] == cuda.waits


def test_device_that_does_not_get_there(cuda: Cuda, late: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose device does not finish in time is too late."""
    may_end = threading.Event()
    monkeypatch.setattr(cuda, "synchronize", lambda _device: may_end.wait(DEADLINE))
    with pytest.raises(TooLate) as raised:
        call_within(0.05, lambda: late.sum().item())
    may_end.set()
    assert raised.value.call.finished.acquire(timeout=DEADLINE)


@pytest.mark.parametrize("error", ["CUDA error: device-side assert triggered\nCompile with `DSA`", CAPTURE_ERROR])
def test_failed_device(cuda: Cuda, late: Any, error: str) -> None:
    """The error of a device that has failed replaces the text of a value, whichever question it answers with it."""
    cuda.error = error
    expected = f"<elements on cuda:0 cannot be read: {error.splitlines()[0]}>"
    assert expected == within_deadline(int, lambda: str(late.sum()))


@pytest.mark.parametrize("where", ["caller", "stopped thread", "torch"])
def test_nothing_is_read_during_a_capture(cuda: Cuda, late: Any, where: str) -> None:
    """While the stream of the caller, of a stopped thread or of torch is captured, no element is read."""
    cuda.capturing = "captured"
    cuda.graph.default_capture_stream = "captured" if where == "torch" else None
    streams = {"caller": ["default", "captured"], "stopped thread": ["captured", "default"], "torch": ["default"] * 2}
    stopped, caller = map(cuda.stream, streams[where])
    with stopped, remembered_while_stopped(), caller:
        shown = repr(compute_statistics(late, seconds=DEADLINE))
    assert (f"incomplete: {CAPTURE}", []) == (shown, cuda.waits)


def test_stream_of_a_stopped_thread(cuda: Cuda) -> None:
    """An expression for a stopped thread is evaluated with the thread's stream."""
    ident = threading.get_ident()
    with contextlib.ExitStack() as stack:
        with cuda.stream("side"):
            stack.enter_context(remembered_while_stopped())
        with as_stopped_thread(ident):
            assert "side" == cuda.current
    assert "default" == cuda.current


def test_device_of_a_running_thread(cuda: Cuda) -> None:
    """An expression for a running process is evaluated on the only GPU that the process uses, or else on the first."""
    with as_stopped_thread(None):
        assert "default of 2" == cuda.current
    cuda.reserved[0] = 1
    with as_stopped_thread(None):
        assert "default" == cuda.current

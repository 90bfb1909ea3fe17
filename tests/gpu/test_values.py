"""Facts about values on a GPU, beside a kernel that does not end before the test wants it to."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_agent.monitor.allocator import read_allocator
from relay_agent.values.contents import compute_statistics, fingerprint
from relay_agent.values.presentation import describe
from relay_agent.values.torch_state import CAPTURE
from relay_core.agent_api.evaluation import Selection
from tests.support.debuggers.examined_job import stopped_at
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.gpu import needs_gpu

pytestmark = needs_gpu

CYCLES = 4_000_000_000
"""Of a GPU's clock; two seconds at 2 GHz."""

TRAINING = f"""\
import warnings

warnings.simplefilter("ignore")  # torch's own
import torch

class Half(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        return value / 2

    @staticmethod
    def backward(context, gradient):
        half = gradient / 2
        return half  # in backward

class Lazy:
    @property
    def mean(self):
        return late.mean().item()

late = torch.zeros(1000, device="cuda")
late.sum().item(), Lazy().mean, (late * 2).add_(1)
side = torch.cuda.Stream()
torch.cuda.synchronize()
with torch.cuda.stream(side), torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    torch.cuda._sleep({2 * CYCLES})
    late.fill_(1)
    torch.is_grad_enabled()  # in the side stream
torch.cuda.synchronize()
weight = torch.ones(4, device="cuda", requires_grad=True)
Half.apply(weight).sum().backward()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = late * 2
    captured.add_(1)  # in a capture
graph.replay()
print("sum", captured.sum().item(), flush=True)
"""
STATE = "torch.is_grad_enabled(), torch.is_autocast_enabled('cuda'), torch.cuda.current_stream() == side"


@pytest.fixture
def busy() -> Iterator[None]:
    """A kernel that keeps the GPU's stream busy, and has not ended when the test has."""
    import torch

    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    ended = torch.cuda.Event()
    ended.record()
    yield
    assert not ended.query(), "the test has waited for the GPU"
    torch.cuda.synchronize()


def test_description_waits_for_no_kernel(busy: None) -> None:
    """A tensor, a module and a list of tensors on a GPU are described while its stream is busy."""
    import torch

    weights = torch.empty(64, 32, device="cuda", requires_grad=True)
    assert "Tensor[64, 32] float32 cuda:0 grad" == describe(weights)
    layer = torch.nn.utils.skip_init(torch.nn.Linear, 4, 2, device="cuda")
    assert "Linear 10 parameters float32 cuda:0 training" == describe(layer)


def test_statistics_end_at_their_deadline(busy: None) -> None:
    """Statistics of a tensor whose kernel has not ended are incomplete after their time limit."""
    import torch

    values = torch.empty(1024, device="cuda")
    text = repr(compute_statistics(values, seconds=0.3))
    assert "incomplete: computing the statistics took longer than 0.3 s" in text


def test_equal_values_on_gpu_and_cpu() -> None:
    """Statistics and checksums of a tensor do not depend on where it is, of more than one piece either."""
    import torch

    values = torch.arange(20_000_000, dtype=torch.float32)
    moved = values.cuda()
    until = time.monotonic() + DEADLINE
    assert fingerprint(values, Selection(), until) == fingerprint(moved, Selection(), until)
    moved[12_345_678] = float("nan")
    assert fingerprint(values, Selection(), until) != fingerprint(moved, Selection(), until)
    assert "min 0 max 2e+07" in repr(compute_statistics(values, 60))
    assert ", 1 NaN of 20,000,000" in repr(compute_statistics(moved, 60))


async def test_training_job_at_breakpoints(tmp_path: Path, record_property) -> None:
    """Values are those of the stopped thread after all its work, also in backward; a capture stays intact."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    lines = [number for number, line in enumerate(TRAINING.splitlines(), 1) if "  # in " in line]
    async with stopped_at(script, *lines) as examined:
        started = time.monotonic()
        assert "<Slow: mean takes longer than 0.4 s>" == (await examined.expand("Lazy()"))["mean"]
        assert "(False, True, True)" == (await examined.ask(STATE))[0]
        assert "1000.0" == (await examined.ask("late.sum().item()"))[0]
        record_property("figure", f"waited {time.monotonic() - started:.1f} s for the GPU")
        assert (await examined.value("late", "repl")).startswith("tensor([1., 1.")
        await examined.move("continue")
        assert ("(4,)", f"backward train.py:{lines[0]}") == (await examined.ask("tuple(gradient.shape)"))[:2]
        await examined.move("continue")
        assert CAPTURE == (await examined.ask("captured.sum().item()"))[0]
        assert f"<{CAPTURE}>" == await examined.value("captured", "repl") == (await examined.expand("Lazy()"))["mean"]
        assert f"incomplete: {CAPTURE}" == await examined.value("__import__('relay_agent').stats(captured)", "repl")
        await examined.client.request("continue", {"threadId": examined.thread}, within=DEADLINE)
        assert "sum 3000.0" == await examined.program.line()


def test_allocator() -> None:
    """The numbers of torch's allocator are those of this process."""
    import torch

    held = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    allocated, reserved, peak, failures, *_ = read_allocator() or [0] * 5
    assert held.numel() <= allocated <= reserved
    assert allocated <= peak
    assert 0 == failures

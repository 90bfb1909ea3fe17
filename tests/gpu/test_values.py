"""Facts about values on a GPU, beside a kernel that does not end before the test wants it to."""

import time
from collections.abc import Iterator

import pytest

from relay_agent.monitor.allocator import read_allocator
from relay_agent.values.fingerprint import fingerprint
from relay_agent.values.presentation import describe
from relay_agent.values.statistics import compute_statistics
from relay_core.agent_api.evaluation import Selection
from tests.support.deadline import DEADLINE
from tests.support.gpu import needs_gpu

pytestmark = needs_gpu

CYCLES = 4_000_000_000
"""Of a GPU's clock; two seconds at 2 GHz."""


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


def test_allocator() -> None:
    """The numbers of torch's allocator are those of this process."""
    import torch

    held = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    allocated, reserved, peak, failures, *_ = read_allocator() or [0] * 5
    assert held.numel() <= allocated <= reserved
    assert allocated <= peak
    assert 0 == failures

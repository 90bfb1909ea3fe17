"""Facts about the numbers of torch's allocator; no test has a GPU, so torch's CPU build is used."""

import ast
import subprocess
import sys

import pytest

from relay_agent.monitor.allocator import KEYS, summed
from relay_agent.monitor.readings import AllocatorReading, HeldMemory
from relay_core.agent_api.usage import AllocatorUsage
from relay_core.records import parse_or_none
from tests.support.jobs.processes import run_job
from tests.support.jobs.torch_job import needs_torch
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import REPOSITORY, environment

STATS = {
    "active_bytes.all.current": 5,
    "allocated_bytes.all.allocated": 100,
    "allocated_bytes.all.current": 6,
    "allocated_bytes.all.peak": 7,
    "allocated_bytes.small_pool.current": 6,
    "num_alloc_retries": 1,
    "num_ooms": 2,
    "reserved_bytes.all.current": 8,
    "reserved_bytes.all.peak": 9,
}
"""What `torch.cuda.memory_stats` returns, with the keys that its documentation lists."""


def test_numbers_of_all_devices() -> None:
    """They are summed, in the order in which an agent reads them; a number that a version of torch lacks is 0."""
    assert AllocatorUsage(allocated=6, reserved=8, peak=7, ooms=2, retries=1) == parse_or_none(
        AllocatorUsage, summed([STATS])
    )
    assert [12, 16, 14, 4, 2] == summed([STATS, STATS])
    assert [6, 8, 7, 2, 1] == summed([STATS, {}])


async def test_without_torch() -> None:
    """A process without torch has no numbers, and nothing is imported."""
    code = """
        from relay_agent.monitor.allocator import read_allocator
        before = dict(sys.modules)
        print(read_allocator(), sys.modules == before, "torch" in sys.modules)
    """
    assert ["None True False"] == (await run_job(code))[1]


def with_torch(code: str) -> list[str]:
    """Run code in a process that has imported torch, and return its output."""
    code = f"import sys, torch\nfrom relay_agent.monitor.allocator import read_allocator\n{code}"
    command = [sys.executable, "-c", code]
    env = environment(PYTHONPATH=str(REPOSITORY))
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=DEADLINE, env=env
    ).stdout.splitlines()


@needs_torch
@pytest.mark.job
def test_cuda_is_not_initialized() -> None:
    """A process that has imported torch and not used CUDA has no numbers; CUDA stays as it is."""
    assert ["None True False"] == with_torch(
        "before = dict(sys.modules)\nprint(read_allocator(), sys.modules == before, torch.cuda.is_initialized())"
    )


@needs_torch
@pytest.mark.job
def test_torch_has_these_keys() -> None:
    """Torch documents the keys, and makes them from the nested numbers of its C extension.

    A GPU on which no memory is reserved is not listed; the others have their UUID as nvidia-smi prints it.
    """
    (documented,) = with_torch("print(ascii(torch.cuda.memory_stats.__doc__))")
    text = ast.literal_eval(documented)
    assert '"allocated_bytes.{all,large_pool,small_pool}.{current,peak,allocated,freed}"' in text
    assert '"reserved_bytes.{all,large_pool,small_pool}.{current,peak,allocated,freed}"' in text
    assert all(f'"{key}"' in text for key in KEYS if "." not in key)
    (found,) = with_torch(
        "amount = lambda current, peak: {'all': {'current': current, 'peak': peak}}\n"
        "import types, uuid\n"
        "torch._C._cuda_memoryStats = lambda device: {'allocated_bytes': amount(6 + device, 7),\n"
        "    'reserved_bytes': amount(8 * device, 9), 'num_ooms': 2, 'num_alloc_retries': 1}\n"
        "torch.cuda._initialized, torch.cuda.device_count = True, lambda: 3\n"
        "torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(uuid=uuid.UUID(int=device))\n"
        "before = dict(sys.modules)\n"
        "print(read_allocator() if sys.modules == before else None)"
    )
    uuid = "GPU-00000000-0000-0000-0000-00000000000"
    held = HeldMemory(f"{uuid}1", 8), HeldMemory(f"{uuid}2", 16)
    expected = AllocatorReading(AllocatorUsage(21, 24, 21, 6, 3), held)
    assert expected == AllocatorReading.of(ast.literal_eval(found))

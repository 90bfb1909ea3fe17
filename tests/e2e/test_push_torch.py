"""Facts about new code for a real torch job: four gloo ranks that meet in an all_reduce in every step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jobs.push_job import push_between_steps, until_logged
from tests.support.jobs.torch_job import needs_torch, torch_job
from tests.support.machine.ports import consecutive_ports
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch, pytest.mark.usefixtures("torch_import")]

SOURCE = """\
import argparse
import os

import torch
import torch.distributed as dist

import relay_agent


@torch.compile(backend="eager")
def scaled(value):
    return value * 2


def step(rank, number):
    value = scaled(torch.full((4,), float(rank)))
    dist.all_reduce(value)
    return f"{number} old {int(value[0])}"


def train(rank):
    number = 0
    with open(f"steps-{rank}", "w", buffering=1) as log:
        while True:
            print(step(rank, number), file=log)
            number += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    relay_agent.add_debug_arguments(parser)
    parser.parse_args()
    torch.set_num_threads(1)
    relay_agent.start_remote_debugging_from_args()
    dist.init_process_group("gloo")
    train(dist.get_rank())
"""
FIXED = SOURCE.replace("old", "new").replace("torch.full((4,)", "torch.full((7,)").replace("value * 2", "value * 4")
"""Another shape: a rank that used it one step before the others would break the all_reduce."""


async def test_all_ranks_change_their_collective_at_the_same_step(relay: LocalRelay, tmp_path: Path) -> None:
    """A fix that changes the shape of an all_reduce reaches all ranks between the same two steps."""
    port = consecutive_ports(4)[0]
    options = ("--debug-ranks", "none", "--debug-allow-edit")
    async with torch_job(relay, tmp_path, port, *options, nodes=2, source=SOURCE, forked=True):
        (first, *others), steps = await push_between_steps(relay, tmp_path, FIXED, old="old 12", new="new")
        await until_logged(tmp_path, "new 24", name="steps")
    assert "train.py: replaced in ranks 0-3 at the same step; takes effect at the next call to step" == first
    assert any("torch.compile graphs that contain a changed function" in line for line in others)
    assert 1 == len({*steps})


ASYNCHRONOUS = (
    SOURCE.replace("    dist.all_reduce(value)\n", "    pending.append(dist.all_reduce(value, async_op=True))\n")
    .replace("def step(", "pending = []\n\n\ndef step(")
    .replace(
        "            number += 1\n",
        "            number += 1\n            time.sleep(0.03 if rank == 3 else 0)\n"
        "            while number % 40 == 0 and pending:\n                pending.pop().wait()\n",
    )
    .replace("import os\n", "import os\nimport time\n")
)
"""Ranks that only start their operations, as with NCCL: up to 40 steps lie between rank 3 and the others."""


ACCUMULATING = (
    SOURCE.replace("    dist.all_reduce(value)", "    if number % 20 == 19:\n        dist.all_reduce(value)")
    .replace("            number += 1\n", "            number += 1\n            time.sleep(0.02 + 0.005 * rank)\n")
    .replace("import os\n", "import os\nimport time\n")
)
"""Gradients are accumulated: there is one operation in 20 steps, in between ranks are up to seven steps apart."""
STAGES = ASYNCHRONOUS.replace("async_op=True", "async_op=True, group=pairs[rank // 2]").replace(
    "    train(dist", "    dist.barrier()\n    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]\n    train(dist"
)
"""Two pipeline stages, each with its own group: nothing that is counted connects them in each step."""


@pytest.mark.parametrize("source", [ASYNCHRONOUS, ACCUMULATING], ids=["asynchronous", "accumulating"])
async def test_ranks_that_are_at_different_steps_change_at_the_same_step(
    relay: LocalRelay, tmp_path: Path, source: str
) -> None:
    """The step is counted: a rank that is behind continues to where the others are held."""
    first, steps = await pushed(relay, tmp_path, source)
    assert "train.py: replaced in ranks 0-3 at the same step; takes effect at the next call to step" == first
    assert 1 == len({*steps})


async def test_ranks_that_cannot_be_compared(relay: LocalRelay, tmp_path: Path) -> None:
    """Ranks without a common group that each step uses are not called equal; those that have one are at one step."""
    first, steps = await pushed(relay, tmp_path, STAGES)
    assert (
        "train.py: replaced in ranks 0-3 while all were held, perhaps not at the same step (at the same step: "
        "ranks 0-1; ranks 2-3); takes effect at the next call to step"
    ) == first
    assert (steps[0], steps[2]) == (steps[1], steps[3])


async def pushed(relay: LocalRelay, directory: Path, source: str) -> tuple[str, list[str]]:
    """Run a job, push to it, and return the first line of the output, and each rank's first step in the new code."""
    port = consecutive_ports(4)[0]
    options = ("--debug-ranks", "none", "--debug-allow-edit")
    async with torch_job(relay, directory, port, *options, nodes=2, source=source, forked=True):
        fixed = source.replace(" old ", " new ")
        (first, *_), steps = await push_between_steps(relay, directory, fixed, old=" old ", new=" new ")
    return first, steps

"""A job for pushes: ranks which wait for each other in every step as in a collective, and log what they compute."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from relay_core.compat import timeout
from tests.support.jobs.running import access, ranks_launcher, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import Finished, Program, program
from tests.support.network.relay import HC, LocalRelay

RANKS = 4
TRAIN = """\
import os
import sys
import time
from pathlib import Path

rank = int(os.environ["RELAY_RANK"])
if rank == int(os.environ.get("WITHOUT_MODEL", -1)):
    time.sleep(3600)

import model

world = int(os.environ["RELAY_WORLD_SIZE"])
here = Path(__file__).parent


def barrier(step):
    (here / f"step-{step}-{rank}").touch()
    while not all((here / f"step-{step}-{other}").exists() for other in range(world)):
        time.sleep(0.001)
    if step:
        (here / f"step-{step - 1}-{rank}").unlink()


net = model.Net()
with open(here / f"log-{rank}", "w", buffering=1) as log:
    step = 0
    while True:
        print(model.train_step(net, step), file=log)
        barrier(step)
        step += 1
"""

MODEL = """\
import time

LR = 0.1
calls = 0


class Net:
    def __init__(self):
        self.weight = 3

    def forward(self, x):
        return x * self.weight


def make_hook(net):
    def hook():
        return net.weight
    return hook


hook = make_hook(Net())


def unused():
    return 1


def train_step(net, step):
    global calls
    calls += 1
    time.sleep(0.01)
    return f"{step} old {net.forward(1)} {calls}"
"""
FIXED = (
    MODEL.replace("old", "new")
    .replace("x * self.weight", "self.scaled(x)")
    .replace("LR = 0.1", "LR = 0.2")
    .replace(
        "    def forward", "    def scaled(self, x):\n        return x * self.weight * int(LR * 50)\n\n    def forward"
    )
)


@contextlib.asynccontextmanager
async def training(
    relay: LocalRelay, directory: Path, *options: str, ranks: int = RANKS, cwd: Path | None = None, **variables: str
) -> AsyncIterator[Program]:
    """Run some ranks until each has logged a step."""
    (script := directory / "train.py").write_text(TRAIN)
    (directory / "model.py").write_text(MODEL)
    async with running_job(
        relay,
        script,
        "--debug-ranks",
        "none",
        *options,
        launcher=ranks_launcher(ranks),
        cwd=cwd or directory,
        **variables,
    ) as job:
        await job.line("listening on 'myhc'")
        if not variables:
            await until_logged(directory, "old", range(ranks))
        yield job


async def push(relay: LocalRelay, directory: Path, source: str, *arguments: str) -> Finished:
    """Push a text as model.py."""
    local = directory / "local"
    local.mkdir(exist_ok=True)
    (local / "model.py").write_text(source)
    return await push_from(relay, directory, local, "model.py", *arguments)


async def push_from(relay: LocalRelay, directory: Path, cwd: Path, *arguments: str) -> Finished:
    """Push a file from a directory."""
    command = ("relay_client", "--hc", HC, "push", *arguments)
    async with program(*command, env=access(relay, directory, "send"), cwd=cwd) as client:
        return await client.finish()


async def until_logged(directory: Path, text: str, ranks: Sequence[int] = range(RANKS), name: str = "log") -> None:
    """Wait until the last lines of some ranks, in the files with this name, have a text."""
    logs = [directory / f"{name}-{rank}" for rank in ranks]
    async with timeout(DEADLINE):
        while not all(log.exists() and text in "".join(log.read_text().splitlines()[-3:]) for log in logs):
            await asyncio.sleep(0.05)


async def push_between_steps(
    relay: LocalRelay, directory: Path, fixed: str, *, old: str, new: str, ranks: Sequence[int] = range(RANKS)
) -> tuple[list[str], list[str]]:
    """Push new code for train.py to a job whose ranks log each step in `steps-RANK`, with the number first.

    Args:
        relay: Between job and client.
        directory: Of the job.
        fixed: The new code.
        old: What the last steps have in common when the push begins.
        new: What steps in the new code have in common.
        ranks: Those of the job.

    Returns:
        The lines of the output, and the number of each rank's first step in the new code.
    """
    await until_logged(directory, old, ranks, "steps")
    local = directory / "local"
    local.mkdir()
    (local / "train.py").write_text(fixed)
    pushed = await push_from(relay, directory, local, "train.py")
    assert 0 == pushed.status, pushed.stderr
    await until_logged(directory, new, ranks, "steps")
    logs = [(directory / f"steps-{rank}").read_text().splitlines() for rank in ranks]
    return pushed.stdout.splitlines(), [next(line for line in log if new in line).split()[0] for log in logs]

"""New code for four running ranks that wait for each other in every step.

The time is from the call of `relay_client.push` until the last rank has executed its first step with the new code; the
connection exists already. The longest hold is the longest time between two steps of a rank during that, beside the
longest before. The ranks write the time of each step to a file, by a clock that all processes share.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from relay_client.agents.tunnels import Tunnels
from relay_client.push.deliver import push_file
from relay_core.compat import timeout
from tests.bench.report import Row, median_ms
from tests.bench.stage import Stage
from tests.support.jobs.running import ranks_launcher, running_job
from tests.support.machine.ports import consecutive_ports
from tests.support.network.relay import local_relay
from tests.support.network.tunnel import QUICK

__all__ = ["push"]

RANKS = 4
WITHIN = 120.0
TRAIN = """\
import os
import time
from pathlib import Path

import model

rank, world, here = int(os.environ["RELAY_RANK"]), int(os.environ["RELAY_WORLD_SIZE"]), Path(__file__).parent
step = 0
with open(here / f"log-{rank}", "w", buffering=1) as log:
    while True:
        version = model.train_step()
        (here / f"step-{step}-{rank}").touch()
        while not all((here / f"step-{step}-{other}").exists() for other in range(world)):
            time.sleep(0.001)
        if step:
            (here / f"step-{step - 1}-{rank}").unlink()
        step += 1
        print(time.monotonic(), version, file=log)
"""
MODEL = """\
import time


def train_step():
    time.sleep(0.01)
    return {version}
"""


async def push(_stage: Stage, *, quick: bool) -> list[Row]:
    """Push several versions, one by one."""
    count = 5 if quick else 20
    with TemporaryDirectory() as directory:
        here = Path(directory)
        (here / "train.py").write_text(TRAIN)
        (here / "model.py").write_text(MODEL.format(version=0))
        options = ("--port", str(consecutive_ports(RANKS)[0]), "--debug-ranks", "none", "--debug-allow-edit")
        async with (
            local_relay(here / "tls") as relay,
            running_job(relay, here / "train.py", *options, launcher=ranks_launcher(RANKS), cwd=here) as job,
            Tunnels(relay.endpoint, relay.sender, relay.tls, settings=QUICK) as client,
        ):
            await job.line("listening on")
            await client.search.wait_for(lambda: len(client.reachable_targets()) == RANKS or None, lambda _why: None)
            started = await _until(here, 0)
            pushes = []
            for version in range(1, count + 1):
                await asyncio.sleep(0.2)  # some steps of each version
                pushed = time.monotonic()
                await push_file(client, "model.py", MODEL.format(version=version), ranks="all", seconds=WITHIN)
                pushes.append((pushed, await _until(here, version)))
        steps = [_times(here, rank) for rank in range(RANKS)]
    holds = [max(_gap(times, *push) for times in steps) for push in pushes]
    usual = max(_gap(times, started, pushes[0][0]) for times in steps)
    figure = f"push to {RANKS} ranks"
    return [
        Row(figure, "until all execute it", "ms", {"push": median_ms([end - start for start, end in pushes])}),
        Row(figure, "longest hold of a rank", "ms", {"longest step without": usual * 1000, "push": median_ms(holds)}),
    ]


async def _until(here: Path, version: int) -> float:
    """Wait until each rank has logged a step of a version, and return when the last one has."""
    async with timeout(WITHIN):
        while True:
            found = [_first(here, rank, version) for rank in range(RANKS)]
            if all(found):
                return max(found)
            await asyncio.sleep(0.005)


def _lines(here: Path, rank: int) -> list[list[str]]:
    log = here / f"log-{rank}"
    complete = log.read_text().rpartition("\n")[0] if log.exists() else ""
    return [line.split() for line in complete.splitlines()]


def _first(here: Path, rank: int, version: int) -> float:
    return next((float(when) for when, found in _lines(here, rank) if int(found) == version), 0.0)


def _times(here: Path, rank: int) -> list[float]:
    return [float(when) for when, _ in _lines(here, rank)]


def _gap(times: list[float], start: float, end: float) -> float:
    """Return the longest time between two steps of which the second one ended in a period."""
    return max(after - before for before, after in itertools.pairwise(times) if start <= after <= end)

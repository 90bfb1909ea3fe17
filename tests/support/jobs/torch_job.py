"""A real torch job on two "nodes" with two ranks each, which meet in an all_reduce in every step.

A node is what shares an agent: each has a directory of its own for the meeting of its processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psutil
import pytest

from relay_core.compat import timeout
from tests.support.jobs.loaded_torch import Node, start_node
from tests.support.jobs.processes import ROOT, end_family, gone
from tests.support.jobs.running import access, step_arguments
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import environment
from tests.support.network.relay import LocalRelay

Launcher = asyncio.subprocess.Process | Node
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

SCRIPT = """\
import argparse
import os
import time

import torch
import torch.distributed as dist

import relay_agent


def train(rank, steps):
    total = torch.zeros(3)
    step = 0
    while step < steps and not total[1]:
        step += 1
        wishes = [float(os.path.exists(name)) for name in ("stop", "stand")]  # of one rank: all do it in the same step
        value = torch.tensor([float(rank), *wishes])
        total = value.clone()
        dist.all_reduce(total)
        mean = total[0].item() / dist.get_world_size()
        time.sleep(0.02)
        while total[2] and os.path.exists("stand"):
            open(f"standing-{rank}", "w").close()
            time.sleep(0.01)
    return mean


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000_000)
    relay_agent.add_debug_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    relay_agent.start_remote_debugging_from_args()
    dist.init_process_group("gloo")
    print(f"rank {dist.get_rank()} restart {os.environ['TORCHELASTIC_RESTART_COUNT']} pid {os.getpid()}", flush=True)
    train(dist.get_rank(), arguments.steps)
    dist.destroy_process_group()
"""


def line_of(code: str) -> int:
    """Return the number of the script's line that holds `code`."""
    return next(number for number, line in enumerate(SCRIPT.splitlines(), start=1) if code in line)


class TorchJob:
    """A running job.

    Args:
        directory: Where the script and the nodes' directories are.
        launchers: The process of each node that has started its ranks.
        ranks: How many it has.
    """

    def __init__(self, directory: Path, launchers: Sequence[Launcher], ranks: int) -> None:
        self.directory = directory
        self.script = directory / "train.py"
        self.launchers = launchers
        self.ranks = ranks

    @contextlib.asynccontextmanager
    async def standing(self) -> AsyncIterator[None]:
        """Have all ranks stand between the same two steps for a block."""
        (self.directory / "stand").touch()
        async with timeout(DEADLINE):
            while len(list(self.directory.glob("standing-*"))) < self.ranks:
                await asyncio.sleep(0.02)
        yield
        (self.directory / "stand").unlink()

    def stop(self) -> None:
        """Let every rank leave its loop."""
        (self.directory / "stop").touch()

    async def finish(self) -> list[int]:
        """Wait for both launchers, and return their exit statuses."""
        async with timeout(DEADLINE):
            await asyncio.gather(*(gone(launcher.pid) for launcher in self.launchers))
            return [await launcher.wait() for launcher in self.launchers]

    def rank_pids(self) -> dict[int, int]:
        """Return the process of each rank that runs."""
        found = {}
        for launcher in self.launchers:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(launcher.pid).children():
                    with contextlib.suppress(psutil.Error):
                        if str(self.script) in child.cmdline():
                            found[int(child.environ()["RANK"])] = child.pid
        return found

    def left_over(self) -> list[Path]:
        """Return what the nodes' agents have left behind."""
        return list(self.directory.glob("n[01]"))


async def end_families(launchers: Sequence[Launcher]) -> None:
    """Kill processes and all that they have started, and wait until they are gone."""
    for launcher in launchers:
        await end_family(launcher.pid)
        await launcher.wait()


def show_logs(directory: Path) -> None:
    """Print the logs of the launchers and their ranks, to find the cause of a failure."""
    for log in sorted(directory.glob("log-*")):
        print(log.name, log.read_text(errors="replace"), sep="\n")


def _torchrun(node: int, nodes: int, ranks: int, meeting: int, restarts: int) -> list[str]:
    """Return the command that starts a script on a node."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nodes), "--node-rank", str(node)),
        *("--nproc-per-node", str(ranks // nodes), "--rdzv-backend", "c10d", "--rdzv-id", "tests"),
        *("--rdzv-endpoint", f"127.0.0.1:{meeting}", "--max-restarts", str(restarts)),
    ]


NODE = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
"""In the environment of all ranks."""


def rendezvous(port: int, ranks: int) -> dict[str, str]:
    """Return the variables by which the ranks of such a job find each other, as torchrun sets them."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "tests",
    }


async def _start(command: Sequence[str], directory: Path, log: Path, env: dict[str, str]) -> asyncio.subprocess.Process:
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=env,
        )


@contextlib.asynccontextmanager
async def torch_job(
    relay: LocalRelay,
    directory: Path,
    port: int,
    *arguments: str,
    restarts: int = 0,
    nodes: int = 2,
    ranks: int = 4,
    source: str = SCRIPT,
    forked: bool = False,
) -> AsyncIterator[TorchJob]:
    """Run the job on one or two "nodes"; all its processes have ended when the block has.

    Args:
        relay: To listen on.
        directory: For its script and its nodes.
        port: Of rank 0.
        arguments: More arguments of the script.
        restarts: How often torchrun starts it again.
        nodes: How many.
        ranks: How many, on all nodes together.
        source: Of the script.
        forked: Run the ranks without torchrun; they share one import of torch (fixture `torch_import`).
    """
    script = directory / "train.py"
    script.write_text(source)
    meeting = free_port()
    options = step_arguments(port, *arguments)
    launchers: list[Launcher] = []
    try:
        for node in range(nodes):
            log = directory / f"log-{node}"
            variables = access(relay, directory, "listen", RELAY_NODE_DIR=str(directory / f"n{node}"))
            if forked:
                first, count = node * ranks // nodes, ranks // nodes
                env = environment(**NODE, **rendezvous(meeting, ranks), **variables)
                launchers.append(
                    await start_node(first, count, [str(script), *options], cwd=directory, log=log, env=env)
                )
            else:
                command = [*_torchrun(node, nodes, ranks, meeting, restarts), str(script), *options]
                launchers.append(await _start(command, directory, log, environment(**NODE, **variables)))
        yield TorchJob(directory, launchers, ranks)
    finally:
        await end_families(launchers)
        show_logs(directory)

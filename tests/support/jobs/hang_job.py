"""Real torch jobs of gloo ranks on this machine that hang in a chosen way, each rank a process under the agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

from relay_core.compat import timeout
from tests.support.jobs.loaded_torch import start_node
from tests.support.jobs.running import access, step_arguments
from tests.support.jobs.torch_job import NODE, end_families, rendezvous, show_logs
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports, free_port
from tests.support.machine.programs import environment, run
from tests.support.network.relay import HC, LocalRelay

__all__ = ["SCRIPT", "HangJob", "hang_job", "line_of"]

SCRIPT = """\
import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist

import relay_agent

rank = int(os.environ["RANK"])
x = torch.ones(16)


def skip():
    if rank == 2:
        time.sleep(1000)  # skip: elsewhere
    dist.all_reduce(x)  # skip: all


def later():
    import torch._inductor  # as any optimizer does; without it, the recorder cannot be asked for the call

    work = []
    if rank == 1:
        time.sleep(1000)  # later: elsewhere
    reduce(work)
    work[0].wait()  # later: waits


def reduce(work):
    work.append(dist.all_reduce(x, async_op=True))  # later: calls


def operation():
    if rank == 2:
        dist.broadcast(x, 0)  # operation: odd
    else:
        dist.all_reduce(x)  # operation: all


def shape():
    if rank == 3:
        time.sleep(1000)  # shape: root
    dist.broadcast(torch.ones(17 if rank == 2 else 16), 3)  # shape: all


def order():
    first, second = dist.new_group(group_desc="first"), dist.new_group(group_desc="second")
    if rank == 1:
        first, second = second, first
    dist.all_reduce(x, group=first)  # order: all


def dead():
    while rank == 2:
        if os.path.exists("kill"):
            os.kill(os.getpid(), 9)
        time.sleep(0.05)
    dist.all_reduce(x)  # dead: all


def loop():
    total = 0
    if rank == 1:
        while True:
            total += 1  # loop: turns
    dist.barrier()  # loop: all


def gil():
    if rank == 1:
        while not os.path.exists("hold"):  # its helper thread registers the process with the agent, and needs the GIL
            time.sleep(0.05)
        mutex = ctypes.create_string_buffer(64)  # zeros are an ordinary mutex that is free
        lock = ctypes.PyDLL(None).pthread_mutex_lock
        lock(mutex)
        lock(mutex)  # gil: holder
    dist.all_reduce(x)  # gil: all


def two():
    even, odd = dist.new_group([0, 2], group_desc="even"), dist.new_group([1, 3])
    if rank > 1:
        time.sleep(1000)  # two: elsewhere
    dist.all_reduce(x, group=odd if rank % 2 else even)  # two: all


def group():
    if rank == 2:
        time.sleep(1000)  # group: elsewhere
    dist.new_group()  # group: all


def well():
    while True:
        dist.all_reduce(x)
        time.sleep(0.01)  # well: pause


if __name__ == "__main__":
    torch.set_num_threads(1)
    relay_agent.start_remote_debugging_from_args()
    if sys.argv[1] != "alone":
        dist.init_process_group("gloo")
        for _ in range(5):
            dist.all_reduce(x)
        with open(f"ready-{rank}", "w"):
            pass
        globals()[sys.argv[1]]()
    time.sleep(1000)
"""


def line_of(marker: str, source: str = SCRIPT) -> str:
    """Return the place of the line with this comment, as a verdict names it: `train.py:18 in skip`."""
    lines = source.splitlines()
    index = next(index for index, line in enumerate(lines) if line.endswith(f"# {marker}"))
    function = next(re.match(r"def (\w+)", line) for line in lines[index::-1] if line.startswith("def "))
    assert function is not None
    return f"train.py:{index + 1} in {function[1]}"


class HangJob:
    """A running job.

    Args:
        relay: What it listens on.
        directory: Where its script is.
        port: Its base port.
        ranks: How many it has.
    """

    def __init__(self, relay: LocalRelay, directory: Path, port: int, ranks: int) -> None:
        self.directory = directory
        self.port = port
        self.ranks = ranks
        self._relay = relay

    async def until_ready(self) -> None:
        """Wait until each rank has made the process group and completed five operations."""
        async with timeout(DEADLINE):
            while len(list(self.directory.glob("ready-*"))) < self.ranks:
                await asyncio.sleep(0.05)

    async def verdict(self, *options: str) -> tuple[int, str]:
        """Return the exit status and the output of `relay-client hang`, with ages as `N s`."""
        client = access(self._relay, self.directory, "send")
        found = await run("relay_client", "--hc", HC, "hang", *options, env=client)
        return found.status, re.sub(r"\(\d+ (s|min) ago\)", "(N s ago)", found.stdout).rstrip("\n")

    async def verdict_that(self, wanted: str) -> tuple[int, str]:
        """Return the first verdict that contains a text: a rank may need a while to get where it hangs."""
        async with timeout(DEADLINE):
            while True:
                status, text = await self.verdict()
                if wanted in text:
                    return status, text
                print(text)

    async def groups(self) -> object:
        """Return the groups of the first job in the JSON output."""
        _, text = await self.verdict("--json")
        return json.loads(text)["jobs"][0]["groups"]


@contextlib.asynccontextmanager
async def hang_job(
    relay: LocalRelay,
    directory: Path,
    scenario: str,
    *arguments: str,
    ranks: int = 4,
    source: str = SCRIPT,
    **variables: str,
) -> AsyncIterator[HangJob]:
    """Run a job; all its processes have ended when the block has.

    Args:
        relay: To listen on.
        directory: For its script and its node.
        scenario: A function of the script, or "alone" for a job without a process group.
        arguments: More arguments of the script.
        ranks: How many.
        source: The script.
        variables: More of its environment.
    """
    script = directory / "train.py"
    script.write_text(source)
    port = consecutive_ports(ranks)[0]
    launcher = await start_node(
        0,
        ranks,
        [str(script), scenario, "--debug-ranks", "none", *step_arguments(port, *arguments)],
        cwd=directory,
        log=directory / "log-0",
        env=environment(**NODE, **rendezvous(free_port(), ranks), **access(relay, directory, "listen"), **variables),
    )
    try:
        yield HangJob(relay, directory, port, ranks)
    finally:
        await end_families([launcher])
        show_logs(directory)

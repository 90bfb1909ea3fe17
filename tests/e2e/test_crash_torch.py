"""Facts about the log of a rank of torchrun that is held at an exception: torch collects what hooks print."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.jobs.running import running_job
from tests.support.jobs.torch_job import NODE, needs_torch
from tests.support.machine.ports import consecutive_ports
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch]

DEBUG = "relay_agent.start_remote_debugging_from_args()"
GROUP = 'dist.init_process_group("gloo")'
DESTROYED_GROUP = """\
dist.init_process_group(
    "gloo", init_method="file://" + os.environ["STORE"], rank=int(os.environ["RANK"]), world_size=2
)
dist.barrier()
dist.destroy_process_group()
"""
"""A group with its own store: in the same store, a rank can find the addresses of the group that was destroyed.

Without the barrier, a rank can destroy it while the other one is still connecting to it.
"""
CRASHES = """\
import argparse
import os
import sys

import torch.distributed as dist

import relay_agent

parser = argparse.ArgumentParser()
relay_agent.add_debug_arguments(parser)
parser.parse_args()
BEGIN
dist.barrier()
if dist.get_rank() == 1:
    print("pid", os.getpid(), file=sys.stderr, flush=True)
    raise ValueError("odd")
sys.stdin.read()
"""


@pytest.mark.parametrize("begin", [(DEBUG, GROUP), (GROUP, DEBUG), (DEBUG, DESTROYED_GROUP, GROUP)])
async def test_the_log_of_a_held_crash(relay: LocalRelay, tmp_path: Path, begin: tuple[str, ...]) -> None:
    """Traceback and hold are in the log before the hold ends, with the rank, and the traceback is there once."""
    script = tmp_path / "train.py"
    script.write_text(CRASHES.replace("BEGIN", "\n".join(begin)))
    options = ("--port", str(consecutive_ports(2)[0]), "--debug-ranks", "none", "--debug-on-crash", "--hold", "600")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    variables = {**NODE, "STORE": str(tmp_path / "store")}
    async with running_job(relay, script, *options, launcher=launcher, **variables) as job:
        pid = int((await job.line("pid ")).split()[1])
        await job.line("[rank1]: Traceback (most recent call last):")
        await job.line("[rank1]: ValueError: odd")
        await job.line(
            "relay-agent: rank 1: crashed: ValueError: odd; held for up to 600 s; a debugger can attach on port"
        )
        os.kill(pid, signal.SIGINT)
        await job.line("relay-agent: the hold was interrupted")
        ended = await job.finish()
    assert 1 == ended.stderr.count("ValueError: odd\n")
    assert 0 != ended.status

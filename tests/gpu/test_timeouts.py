"""Facts about a rank that is held while its peer waits for it with NCCL: two ranks share one GPU."""

import asyncio
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from relay_core.compat import timeout
from tests.support.jobs.hang_job import hang_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.gpu import needs_gpu
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_gpu, pytest.mark.usefixtures("torch_import")]

TIMEOUT = 20.0
"""Seconds for which the job's own code lets its ranks wait for each other."""
HELD = TIMEOUT + 5
"""Seconds at a breakpoint: here the passing of time is the subject. The watchdog looks every second."""
SCRIPT = f"""\
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import relay_agent

rank = int(os.environ["RANK"])
os.environ["NCCL_HOSTID"] = f"rank-{{rank}}"  # NCCL refuses two ranks of one host on one GPU
os.environ["NCCL_SOCKET_IFNAME"] = "lo"


def train():
    step = 0
    while not os.path.exists("stop"):
        total = torch.ones(1, device="cuda:0")
        dist.all_reduce(total)
        step += int(total.item()) // 2
        backend = dist.group.WORLD._get_backend(torch.device("cuda:0"))
        with open(f"new-{{rank}}", "w") as file:
            file.write(f"{{backend.options._timeout.total_seconds():.0f}} {{step}}")
        os.replace(f"new-{{rank}}", f"state-{{rank}}")
        time.sleep(0.02)  # each step


if __name__ == "__main__":
    relay_agent.start_remote_debugging_from_args()
    dist.init_process_group("nccl", timeout=timedelta(seconds={TIMEOUT}), device_id=torch.device("cuda:0"))
    train()
    os._exit(0)  # the other rank may be one operation ahead
"""
STEP = next(number for number, line in enumerate(SCRIPT.splitlines(), start=1) if line.endswith("# each step"))


async def test_job_survives_a_held_rank(relay: LocalRelay, tmp_path: Path, record_property) -> None:
    """A rank that a late debugger holds for longer than the timeout of its NCCL group does not end the job."""

    def state(rank: int) -> tuple[int, int]:
        """Return the timeout of a rank's group in seconds, and its step; zeros before the first step."""
        file = tmp_path / f"state-{rank}"
        seconds, step = file.read_text().split() if file.exists() else ("0", "0")
        return int(seconds), int(step)

    async def until(seconds: float, step: int) -> None:
        """Wait until both ranks have this timeout, and have passed this step."""
        async with timeout(DEADLINE):
            while not all(state(rank)[0] == seconds and state(rank)[1] > step for rank in (0, 1)):
                await asyncio.sleep(0.05)

    async with (
        hang_job(relay, tmp_path, "train", ranks=2, source=SCRIPT) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [job.port + 1]),
    ):
        await until(TIMEOUT, 10)
        async with await DapClient.connect("127.0.0.1", job.port + 1, within=DEADLINE) as session:
            await session.attach({str(tmp_path / "train.py"): [{"line": STEP}]}, within=DEADLINE)
            event = await session.wait_for_event("stopped", within=DEADLINE)
            await asyncio.sleep(HELD)
            held_at = state(1)[1]
            await session.set_breakpoints(str(tmp_path / "train.py"), [], within=DEADLINE)
            await session.request("continue", {"threadId": event["body"]["threadId"]}, within=DEADLINE)
            await until(86400, held_at + 10)
        await until(TIMEOUT, held_at + 20)
        record_property("figure", f"held {HELD:.0f} s with a timeout of {TIMEOUT:.0f} s, then {state(0)[1]} steps")
        (tmp_path / "stop").touch()

"""Facts about `relay-client watch nan` with a real torch job: two nodes with two gloo ranks each."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.jobs.running import access, running_client, until_registered
from tests.support.jobs.torch_job import needs_torch, torch_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch, pytest.mark.usefixtures("torch_import")]

SCRIPT = """\
import os
import time

import torch
import torch.distributed as dist

import relay_agent


def train(rank, net, optimizer):
    number = 0
    total = torch.zeros(2)
    while not total[1]:
        number += 1
        total = torch.tensor([float(os.path.exists(name)) for name in ("plant", "stop")])
        dist.all_reduce(total)
        batch = torch.ones(8, 4)
        optimizer.zero_grad()
        net(batch).sum().backward()
        if total[0] == 4 and rank == 2 and number > 1:
            net[1].bias.grad[3] = float("nan")
            os.remove("plant")
        before = [each.detach().clone() for each in net.parameters()]
        optimizer.step()  # before this
        time.sleep(0.05)  # each step


if __name__ == "__main__":
    torch.set_num_threads(1)
    relay_agent.start_remote_debugging_from_args()
    dist.init_process_group("gloo")
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    train(dist.get_rank(), net, torch.optim.AdamW(net.parameters()))
    dist.destroy_process_group()
"""
STEP = next(number for number, line in enumerate(SCRIPT.splitlines(), start=1) if line.endswith("# before this"))
CLEAN = (
    "total[0].item(), all(map(torch.equal, before, net.parameters())), all(map(lambda p: p.isfinite().all(), before))"
)
FOUND = r"the gradient of 1\.bias has 1 NaN among 4 elements, first at \[3\]; before AdamW\.step\(\) number (\d+)"


@pytest.mark.parametrize("has_editor", [False, True])
async def test_first_rank_is_held_before_the_step(relay: LocalRelay, tmp_path: Path, has_editor: bool) -> None:
    """The rank, the parameter and the step are named, and the rank stops before its parameters change."""
    port = consecutive_ports(4)[0]
    env = access(relay, tmp_path, "send")
    async with contextlib.AsyncExitStack() as stack:
        job = await stack.enter_async_context(
            torch_job(relay, tmp_path, port, "--debug-ranks", "none", source=SCRIPT, forked=True)
        )
        await until_registered(relay, tmp_path, 4)
        if has_editor:
            await stack.enter_async_context(running_client(relay, tmp_path, "--ports", f"{port}-{port + 3}"))
            editor = await stack.enter_async_context(await DapClient.connect("127.0.0.1", port + 2))
            await editor.attach({}, within=DEADLINE)
        command = ("relay_client", "--hc", HC, "watch", "nan", "number", "--then", "hold")
        watching = await stack.enter_async_context(program(*command, env=env))
        await watching.line("watching the gradients in ranks 0-3, for 1 h or until Ctrl-C")
        (job.directory / "plant").touch()
        assert watching.process.stdout is not None
        hit = (await asyncio.wait_for(watching.process.stdout.readline(), DEADLINE)).decode()
        found = re.fullmatch(rf"\d\d:\d\d:\d\d  rank 2 +#\d+  {FOUND}\. number: (\d+)\n", hit)
        assert found is not None, hit
        assert found[1] == found[2]
        await watching.line("rank 2: waiting for a debugger: 'relay-client pdb 2', or F5 in the editor")
        if has_editor:
            stop = (await editor.wait_for_event("stopped", within=DEADLINE))["body"]
            frame = (await editor.request("stackTrace", {"threadId": stop["threadId"]}))["stackFrames"][0]
            assert ("train", STEP) == (frame["name"], frame["line"])
            value = await editor.request("evaluate", {"expression": CLEAN, "frameId": frame["id"]})
            assert "(4.0, True, True)" == value["result"]
            await editor.request("continue", {"threadId": stop["threadId"]})
        else:
            lines = f"p {CLEAN}\nn\np not all(map(torch.equal, before, net.parameters()))\nq\n".encode()
            seen = await run("relay_client", "--hc", HC, "pdb", "2", env=env, stdin=lines)
            assert 0 == seen.status, seen
            places = [line for line in seen.stdout.splitlines() if line.startswith("> ")]
            assert [f"> {job.script}({number})train()" for number in (STEP, STEP + 1)] == places, seen
            assert "(4.0, True, True)" in seen.stdout
        job.stop()
        ended = await watching.finish()
        assert 0 == ended.status, ended.stderr
        assert [0, 0] == await job.finish()


async def test_finite_gradients(relay: LocalRelay, tmp_path: Path) -> None:
    """As long as all gradients are finite, nothing is reported but their number."""
    port = consecutive_ports(4)[0]
    async with torch_job(relay, tmp_path, port, "--debug-ranks", "none", source=SCRIPT, forked=True) as job:
        await until_registered(relay, tmp_path, 4)
        env = access(relay, tmp_path, "send")
        found = await run("relay_client", "--hc", HC, "watch", "nan", "--for", "12s", env=env)
        assert (17, "") == (found.status, found.stdout)
        assert re.search(r"\nno hit yet: all gradients were finite in \d+ optimizer steps\n", found.stderr)
        assert "\nthe watch has ended after 12 s\n" in found.stderr
        job.stop()
        assert [0, 0] == await job.finish()

"""Facts about `relay-client watch diverge` with a real torch job: two nodes with two gloo ranks each."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.support.jobs.running import access, running_client, until_registered
from tests.support.jobs.torch_job import needs_torch, torch_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import program
from tests.support.network.relay import HC, LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch, pytest.mark.usefixtures("torch_import")]

SCRIPT = """\
import os
import time

import torch
import torch.distributed as dist

import relay_agent


def train(rank, net, optimizer):
    total, number = torch.zeros(2), 0
    while not total[1]:
        number += 1
        total = torch.tensor([float(os.path.exists(name)) for name in ("plant", "stop")])
        dist.all_reduce(total)
        optimizer.zero_grad()
        net(torch.ones(8, 4)).sum().backward()
        optimizer.step()
        if total[0] == 4 and rank == 2:
            with torch.no_grad():
                net[0].weight.view(torch.int32)[2, 1] ^= 1  # the last bit of element 9
            os.remove("plant")
            with open("planted", "w") as file:
                print(number, file=file)
        time.sleep(0.02)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    relay_agent.start_remote_debugging_from_args()
    dist.init_process_group("gloo")
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    net[0].weight.requires_grad_(False)
    train(dist.get_rank(), net, torch.optim.AdamW(net.parameters(), lr=1e-3))
    dist.destroy_process_group()
"""
ODD = r"first differs at '0\.weight' \[4, 4\] float32, element 9: (\S+) instead of (\S+)"


async def test_one_bit_in_one_rank(relay: LocalRelay, tmp_path: Path) -> None:
    """A weight of a rank that differs in one bit is noticed by the next step that is due, and the element is found."""
    port = consecutive_ports(4)[0]
    async with torch_job(relay, tmp_path, port, "--debug-ranks", "none", source=SCRIPT, forked=True) as job:
        await until_registered(relay, tmp_path, 4)
        command = ("relay_client", "--hc", HC, "watch", "diverge", "net", "--every", "10")
        async with program(*command, env=access(relay, tmp_path, "send")) as watching:
            await watching.line("watching 'net' before optimizer steps in ranks 0-3, for 1 h or until Ctrl-C")
            assert watching.process.stdout is not None
            equal = (await asyncio.wait_for(watching.process.stdout.readline(), DEADLINE)).decode()
            (job.directory / "plant").touch()
            ended = await watching.finish()
        assert 0 == ended.status, ended
        assert "\nthe watch has ended: the ranks differ\n" in ended.stderr
        step = r"\d\d:\d\d:\d\d  before AdamW\.step\(\) number (\d+)"
        assert re.fullmatch(rf"{step}: ranks 0-3  equal, checksum \w+ \(4 tensors and values\)\n", equal), equal
        *_, differs, _usual, odd, usual = ended.stdout.splitlines()
        due = re.fullmatch(rf"{step}: rank 2       differs, checksum \w+ \(4 tensors and values\)", differs)
        assert due is not None, ended.stdout
        next_due = (int((job.directory / "planted").read_text()) // 10 + 1) * 10
        assert next_due < int(due[1]) < next_due + 50  # confirmed by one of the next steps
        found = re.fullmatch(rf"{step}: rank 2       {ODD}", odd)
        assert found is not None, ended.stdout
        assert found[2] != found[3]
        assert ": ranks 0-1,3  reference value, checksum " in usual
        job.stop()
        assert [0, 0] == await job.finish()


async def test_comparison_as_json(relay: LocalRelay, tmp_path: Path) -> None:
    """Each step is an object, through a running client, too."""
    port = consecutive_ports(4)[0]
    async with (
        torch_job(relay, tmp_path, port, "--debug-ranks", "none", source=SCRIPT, forked=True) as job,
        running_client(relay, tmp_path, "--ports", f"{port}-{port + 3}"),
    ):
        await until_registered(relay, tmp_path, 4)
        command = ("watch", "diverge", "dict(net.named_parameters())", "--every", "5", "--json")
        env = access(relay, tmp_path, "send")
        async with program("relay_client", "--hc", HC, *command, env=env) as watching:
            assert watching.process.stdout is not None
            equal = json.loads(await asyncio.wait_for(watching.process.stdout.readline(), DEADLINE))
            (job.directory / "plant").touch()
            ended = await watching.finish()
        assert 0 == ended.status, ended
        assert re.fullmatch(r"before AdamW\.step\(\) number \d+", equal["step"])
        [group] = equal["groups"]
        assert ([0, 1, 2, 3], 4) == (group["ranks"], group["leaves"])
        *_, found, last = map(json.loads, ended.stdout.splitlines())
        odd, usual = found["groups"]
        assert ([2], [0, 1, 3]) == (odd["ranks"], usual["ranks"])
        assert ("0.weight", 9) == (odd["difference"]["leaf"], odd["difference"]["element"])
        assert ("ended", "the watch has ended: the ranks differ") == (last["event"], last["text"])
        job.stop()
        assert [0, 0] == await job.finish()

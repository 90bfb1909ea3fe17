"""A real job of torch whose four ranks hold different parts of their models, with gloo, or with NCCL on one GPU."""

from __future__ import annotations

from pathlib import Path

from tests.support.jobs.hang_job import hang_job
from tests.support.jobs.running import access
from tests.support.machine.programs import run
from tests.support.network.relay import HC, LocalRelay

__all__ = ["check_differences"]

SCRIPT = """\
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh
from torch.nn import Linear, Sequential

import relay_agent

rank = int(os.environ["RANK"])
os.environ["NCCL_HOSTID"] = f"rank-{rank}"  # NCCL refuses two ranks of one host on one GPU
os.environ["NCCL_SOCKET_IFNAME"] = "lo"
device = torch.device(os.environ["TESTS_DEVICE"])


def check():
    time.sleep(1000)


if __name__ == "__main__":
    torch.set_num_threads(1)
    relay_agent.start_remote_debugging_from_args()
    torch.manual_seed(0)
    model = Sequential(Linear(8, 8), Linear(8, 4)).to(device)  # initializes CUDA: the mesh then selects no device
    if device.type == "cpu":
        dist.init_process_group("gloo")
    else:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("copies", "parts"))
    fully_shard(model[0], mesh=mesh)
    if rank == 3:
        model[0].bias.to_local().data[2] += 1
        model[1].weight.data[0, 5] += 1
    copies = distribute_tensor(torch.ones(4, 4, device=device), mesh, [Replicate(), Replicate()])
    first = [FullyShardedDataParallel(Linear(8, 8), device_id=device, use_orig_params=original)
             for original in (False, True)]
    with open(f"ready-{rank}", "w"):
        pass
    check()
"""
UNCOMPARED = "not compared, because the ranks hold different parts"


async def check_differences(relay: LocalRelay, directory: Path, device: str) -> None:
    """Assert what `relay-client diff` prints about sharded, replicated and ordinary tensors on a device."""

    async def diff(expression: str, ranks: str = "all") -> list[str]:
        env = access(relay, directory, "send")
        found = await run("relay_client", "--hc", HC, "diff", expression, "--ranks", ranks, env=env)
        assert 0 == found.status, found.stderr
        return found.stdout.splitlines()

    async with hang_job(relay, directory, "check", ranks=4, source=SCRIPT, TESTS_DEVICE=device) as job:
        await job.until_ready()
        odd, usual, *_ = await diff("model")
        assert "rank 3     first differs at '1.weight' [4, 8] float32, element 5: " == odd.partition(": ")[0] + ": "
        assert usual.endswith(" (2 tensors and values; 2 sharded tensors not compared)"), usual
        (line, *_) = await diff("[copies, *first]")
        assert line.startswith("ranks 0-3  equal, checksum "), line
        assert line.endswith(" (one value; 3 sharded tensors not compared)"), line
        assert f"ranks 0-1  {UNCOMPARED} (2 sharded tensors)" == (await diff("model[0]", "0-1"))[0]
        # Of the mesh [[0, 1], [2, 3]], the ranks in a column have the same part.
        assert "  equal, checksum " in (await diff("model[0]", "0,2"))[0]
        assert "  first differs at 'bias' [4] float32, element 2: " in (await diff("model[0]", "1,3"))[0]

"""Facts about the state of ranks that wait in a collective operation, with a real torch job."""

import asyncio
import json
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from relay_core.compat import timeout
from tests.support.editors.all_ranks import AllRanksEditor
from tests.support.jobs.hang_job import SCRIPT, hang_job, line_of
from tests.support.jobs.running import access, running_client
from tests.support.jobs.torch_job import needs_torch
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import run
from tests.support.network.relay import HC, LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch, pytest.mark.usefixtures("torch_import")]

WAITS = "in all_reduce, waiting for rank 2"


async def test_every_view_shows_who_waits_for_whom(relay: LocalRelay, tmp_path: Path) -> None:
    """Ranks in `all_reduce` are shown with the rank that is elsewhere by `targets` and a running relay-client."""
    client = access(relay, tmp_path, "send")
    async with hang_job(relay, tmp_path, "skip") as job:
        await job.until_ready()
        async with timeout(DEADLINE):
            while (alone := await run("relay_client", "--hc", HC, "targets", env=client)).stdout.count(WAITS) < 3:
                print(alone)
        async with running_client(relay, tmp_path, "--ports", str(job.port)), timeout(DEADLINE):
            while (status := await run("relay_client", "status", "--json", env=client)).stdout.count(WAITS) < 3:
                await asyncio.sleep(0.1)
            targets = await run("relay_client", "--hc", HC, "targets", "--json", env=client)
    texts = [target["text"] for target in json.loads(status.stdout)[0]["nodes"][0]["targets"]]
    assert [WAITS, WAITS, "running", WAITS] == texts
    listed = json.loads(targets.stdout)["nodes"][0]["targets"]
    assert [WAITS, WAITS, "", WAITS] == [target["waits"] for target in listed]


async def test_a_step_that_does_not_return_is_explained(relay: LocalRelay, tmp_path: Path) -> None:
    """After a step into `all_reduce` in the session of all ranks, a line names the running rank that it waits for."""
    reduce = "    dist.all_reduce(x)  # skip: all"
    source = SCRIPT.replace(reduce, f"    while not os.path.exists('go'):\n        time.sleep(0.01)\n{reduce}")
    line = line_of("skip: all", source).split()[0].partition(":")[2]
    local = free_port()
    async with (
        hang_job(relay, tmp_path, "skip", source=source) as job,
        running_client(relay, tmp_path, "--all-ranks", str(local)),
        await DapClient.connect("127.0.0.1", local, within=DEADLINE) as dap,
    ):
        await job.until_ready()
        editor = AllRanksEditor(dap, local)
        await dap.attach({str(tmp_path / "train.py"): [{"line": int(line)}]}, within=DEADLINE)
        await editor.until_listed(4)
        (tmp_path / "go").touch()
        stops = await editor.stops(3)
        await editor.move("next", stops["rank 0"]["threadId"])
        shown = await editor.line(WAITS)
        assert shown.startswith(f"ranks 0-1, 3 {WAITS}; rank 2 running (train.py:")

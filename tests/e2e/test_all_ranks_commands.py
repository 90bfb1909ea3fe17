"""Facts about the commands around one debug session for all ranks: the real relay-client, and another terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.jobs.many_ranks import Ranks, line_of
from tests.support.jobs.running import access
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

TRAIN = """\
import time

number = 0
while number < 1_000_000:
    number += 1
    time.sleep(0.01)
"""
COUNT = line_of(TRAIN, "number += 1")


async def test_group_status_and_release(relay: LocalRelay, tmp_path: Path) -> None:
    """`group` chooses who steps, `status` shows port and places of the ranks, and `release` lets one rank go."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    port, here = free_port(), {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    env = access(relay, tmp_path, "send", **here)
    async with (
        Ranks(relay, script, 2),
        program("relay_client", "--hc", HC, "--all-ranks", str(port), env=env) as client,
    ):
        await client.line("ready on")
        nobody = await run("relay_client", "group", "0", env=here)
        assert "no editor is attached to the session of all ranks" in nobody.stderr
        assert f"127.0.0.1:{port} to all ranks\n" in (await run("relay_client", "status", env=here)).stdout
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:
            await dap.attach({str(script): [{"line": COUNT}]}, within=DEADLINE)
            await dap.wait_for_event(
                "output", matching=lambda body: f"ranks 0-1 at train.py:{COUNT}" in body["output"], within=DEADLINE
            )
            chosen = await run("relay_client", "group", "1", "--json", env=here)
            assert {"text": "rank 1"} == json.loads(chosen.stdout)
            unchanged = await run("relay_client", "group", env=here)
            assert ("rank 1\n", "") == (unchanged.stdout, unchanged.stderr)
            wrong = await run("relay_client", "group", "5-3", env=here)
            assert (2, True) == (wrong.status, "invalid group of ranks" in wrong.stderr)
            status = (await run("relay_client", "status", env=here)).stdout
            assert f"127.0.0.1:{port} to all ranks, 2 attached\n" in status
            assert 2 == status.count(f"stopped at train.py:{COUNT} (breakpoint)")
            released = await run("relay_client", "release", "1", env=here)
            assert "rank 1 is released: 1 connection closed\n" == released.stdout
            await dap.wait_for_event("thread", matching=lambda body: body["reason"] == "exited", within=DEADLINE)
            await dap.request("disconnect", within=DEADLINE)


async def test_a_second_start_uses_the_port_that_is_open(relay: LocalRelay, tmp_path: Path) -> None:
    """With `--reuse`, a relay-client ends at once if another one has the port of all ranks open."""
    env = access(relay, tmp_path, "send", RELAY_CLIENT_DIR=str(tmp_path / "own"))
    arguments = ["--hc", HC, "--all-ranks", str(free_port())]
    async with program("relay_client", *arguments, env=env) as client:
        await client.line("ready on")
        again = await run("relay_client", *arguments, "--reuse", env=env)
        assert (0, True) == (again.status, "has opened port" in again.stderr)

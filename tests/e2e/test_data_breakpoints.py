"""Facts about data breakpoints through the real relay-client, in one debug session for all ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap import DapClient
from tests.support.jobs.many_ranks import Ranks, line_of
from tests.support.jobs.running import access
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

TRAIN = """\
import time

class Schedule:
    rate = 0.1

    def step(self, count):
        if count % 10 == 0:
            self.rate = self.rate / 2

schedule = Schedule()

def train():
    time.sleep(0.01)

count = 0
while count < 1_000_000:
    count += 1
    train()
    schedule.step(count)
"""
SLEEP, STORE = line_of(TRAIN, "time.sleep"), line_of(TRAIN, "self.rate = ")


async def test_value_of_one_rank(relay: LocalRelay, tmp_path: Path) -> None:
    """The breakpoint is verified by the rank whose value was selected, and stops that rank; the others run on."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    port, env = free_port(), access(relay, tmp_path, "send", RELAY_CLIENT_DIR=str(tmp_path / "own"))
    async with (
        Ranks(relay, script, 2),
        program("relay_client", "--hc", HC, "--all-ranks", str(port), env=env) as client,
    ):
        await client.line("ready on")
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:

            async def request(command: str, **arguments: Any) -> Any:
                return await dap.request(command, arguments, within=DEADLINE)

            await dap.attach({str(script): [{"line": SLEEP}]}, within=DEADLINE)
            for _ in range(2):
                await dap.wait_for_event("stopped", within=DEADLINE)
            threads = (await request("threads"))["threads"]
            thread = next(each["id"] for each in threads if each["name"] == "rank 1 · MainThread")
            frame = (await request("stackTrace", threadId=thread, levels=1))["stackFrames"][0]
            scopes = (await request("scopes", frameId=frame["id"]))["scopes"]
            globals_ = scopes[-1]["variablesReference"]
            (found,) = [
                each["variablesReference"]
                for each in (await request("variables", variablesReference=globals_))["variables"]
                if each["name"] == "schedule"
            ]
            info = await request("dataBreakpointInfo", variablesReference=found, name="rate")
            assert ("schedule.rate", ["write"]) == (info["description"], info["accessTypes"])
            chosen = [{"dataId": info["dataId"], "accessType": "write"}]
            (state,) = (await request("setDataBreakpoints", breakpoints=chosen))["breakpoints"]
            assert (True, "verified in 1 of 2 ranks") == (state["verified"], state["message"])
            await dap.set_breakpoints(str(script), [], within=DEADLINE)
            await request("continue", threadId=thread)
            body = (await dap.wait_for_event("stopped", within=DEADLINE))["body"]
            assert (thread, "data breakpoint") == (body["threadId"], body["reason"])
            assert re.fullmatch(
                rf"schedule\.rate changed \S+ -> \S+ by (Schedule\.)?step train\.py:{STORE}", body["description"]
            )
            summary = await dap.wait_for_event(
                "output", matching=lambda event: f"rank 1 at train.py:{STORE}" in event["output"], within=DEADLINE
            )
            assert "rank 0 at" not in summary["body"]["output"]
            await request("disconnect")

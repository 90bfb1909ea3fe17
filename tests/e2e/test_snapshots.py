"""Facts about `@snap` and `@hold` in logpoints through the real relay-client, in one debug session for all ranks."""

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
import os, time

def train(count, password):
    rank = int(os.environ["RELAY_RANK"])
    return rank, count

count = 0
while count < 1_000_000:
    count += 1
    train(count, "hunter2-7c9e6679")
    time.sleep(0.02)
"""
RETURN = line_of(TRAIN, "return rank")


async def test_snapshots_and_hold(relay: LocalRelay, tmp_path: Path) -> None:
    """Each rank shows its values while it runs, and after it was stopped; `@hold` in one rank stops all of them."""
    script, local = tmp_path / "node" / "train.py", tmp_path / "laptop" / "train.py"
    for path in (script, local):
        path.parent.mkdir()
        path.write_text(TRAIN)
    port, env = free_port(), access(relay, tmp_path, "send", RELAY_CLIENT_DIR=str(tmp_path / "own"))
    async with (
        Ranks(relay, script, 2),
        program("relay_client", "--hc", HC, "--all-ranks", str(port), env=env) as client,
    ):
        await client.line("ready on")
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:

            async def below(reference: int) -> list[dict[str, Any]]:
                body = await dap.request("variables", {"variablesReference": reference}, within=DEADLINE)
                return list(body["variables"])

            async def values(snapshot: dict[str, Any]) -> dict[str, str]:
                (line,) = await below(snapshot["variablesReference"])
                frames = await below(line["variablesReference"])
                assert ["train", "<module>"] == [each["name"] for each in frames]
                return {each["name"]: each["value"] for each in await below(frames[0]["variablesReference"])}

            wanted = {"line": RETURN, "condition": "count > 3", "logMessage": "@snap step {count} of {RANK}"}
            mapped = {"pathMappings": [{"localRoot": str(local.parent), "remoteRoot": "."}]}
            await dap.attach({str(local): [wanted]}, within=DEADLINE, **mapped)
            found: dict[str, dict[str, Any]] = {}
            while len(found) < 2:
                event = await dap.wait_for_event(
                    "output", matching=lambda body: " | snapshot 2 at " in body["output"], within=DEADLINE
                )
                text = event["body"]["output"]
                number = text[len("rank ")]
                place = rf"train\.py:{RETURN} in train, \d\d:\d\d:\d\d"
                assert re.fullmatch(rf"rank {number} \| snapshot 2 at {place}: step \d+ of {number}\n", text)
                found[number] = event["body"]
            for number, body in found.items():
                assert (str(local), RETURN) == (body["source"]["path"], body["line"])
                assert {"rank": number, "password": "***"}.items() <= (await values(body)).items()

            hold = {"line": RETURN, "condition": "RANK == 1", "logMessage": "@hold step {count}"}
            await dap.set_breakpoints(str(local), [hold], within=DEADLINE)
            threads = set()
            while len(threads) < 2:
                body = (await dap.wait_for_event("stopped", within=DEADLINE))["body"]
                threads.add(body["threadId"])
            names = {each["id"]: each["name"] for each in (await dap.request("threads", within=DEADLINE))["threads"]}
            assert {"rank 0 · MainThread", "rank 1 · MainThread"} == {names[each] for each in threads}
            await dap.wait_for_event(
                "output", matching=lambda body: body["output"].startswith("rank 1 | step "), within=DEADLINE
            )
            await dap.set_breakpoints(str(local), [], within=DEADLINE)
            await dap.request("continue", {"threadId": threads.pop()}, within=DEADLINE)
            for number, body in found.items():
                assert number == (await values(body))["rank"]
            await dap.request("disconnect", within=DEADLINE)

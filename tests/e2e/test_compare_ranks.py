"""Facts about one expression in many ranks, of which one has a wrong weight, one hangs in C and one is stopped."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap.client import DapClient
from tests.support.ports import consecutive_ports
from tests.support.programs import Finished, run
from tests.support.relay import HC, LocalRelay
from tests.support.run_job import access, running_client, running_job, until_registered

pytestmark = pytest.mark.e2e

RANKS = 8
WRONG = 5
IN_C = 2
"""Sleeps in C while it holds the GIL, once its file is there."""
SCRIPT = f"""\
import ctypes
import os
import time
from pathlib import Path

import numpy as np

rank = int(os.environ["RELAY_RANK"])
here = Path(__file__).parent
weights = {{f"layers.{{number}}.weight": np.full((64, 32), number, "float32") for number in range(40)}}
if rank == {WRONG}:
    weights["layers.17.weight"][3, 4] = 0.5
loss = float("nan") if rank == {WRONG} else 0.312


def slow():
    time.sleep(3600)


def work(step):
    inner = step * 2
    time.sleep(0.02)
    return inner


(here / f"ready-{{rank}}").touch()
step = 0
while True:
    step += 1
    work(step)
    if rank == {IN_C} and (here / "hang").exists():
        (here / "hangs").touch()
        ctypes.PyDLL(None).sleep(600)
"""
LAUNCHER = f"""\
for rank in $(seq 0 {{last}}); do
  RELAY_WORLD_SIZE={{ranks}} RELAY_RANK=$rank {sys.executable} "$1" &
done
wait
"""


@contextlib.asynccontextmanager
async def ranks(relay: LocalRelay, directory: Path, port: int, number: int = RANKS) -> AsyncIterator[None]:
    """Run some processes; the block begins when all of them train and a client finds them."""
    script, launcher = directory / "train.py", directory / "launcher.sh"
    script.write_text(SCRIPT)
    launcher.write_text(LAUNCHER.format(last=number - 1, ranks=number))
    options = ("--port", str(port), "--debug-ranks", "none")
    async with running_job(relay, script, *options, launcher=["sh", str(launcher)]):
        while not all((directory / f"ready-{rank}").exists() for rank in range(number)):
            await asyncio.sleep(0.05)
        await until_registered(relay, directory, number)
        yield


async def ask(relay: LocalRelay, directory: Path, *arguments: str) -> Finished:
    client = access(relay, directory, "send")
    return await run("relay_client", "--hc", HC, *arguments, env=client)


async def groups(relay: LocalRelay, directory: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return the groups of `--json`."""
    found = await ask(relay, directory, *arguments, "--json")
    assert 0 == found.status, found.stderr
    return json.loads(found.stdout)["groups"]


async def test_odd_rank_is_named_first(relay: LocalRelay, tmp_path: Path):
    """Values are grouped, the odd one first; a wrong weight is found by name and element; a silent rank is a row."""
    port = consecutive_ports(RANKS)[0]
    async with ranks(relay, tmp_path, port):
        loss = await ask(relay, tmp_path, "eval", "loss")
        shown = ["rank 5         nan", "ranks 0-4,6-7  0.312", "", "evaluated in __main__"]
        assert shown == loss.stdout.splitlines(), loss.stderr
        difference = await ask(relay, tmp_path, "diff", "weights")
        assert (
            "rank 5         differs first at 'layers.17.weight' (64, 32) float32, element 100: 0.5, others 17"
            == difference.stdout.splitlines()[0]
        )
        assert difference.stdout.splitlines()[1].startswith("ranks 0-4,6-7  the others, checksum ")

        few = await groups(relay, tmp_path, "eval", "--ranks", "0,3-4", "rank")
        assert [[0], [3], [4]] == [group["ranks"] for group in few]
        failed = await groups(relay, tmp_path, "eval", "--ranks", "0-1", "missing")
        assert [([0, 1], "NameError: name 'missing' is not defined")] == [(g["ranks"], g["error"]) for g in failed]
        late = await groups(relay, tmp_path, "eval", "--ranks", "0-1", "--timeout", "1s", "slow() if rank else 7")
        assert [([1], "it takes longer than 1 s", ""), ([0], "", "7")] == [
            (group["ranks"], group["error"], group["text"]) for group in late
        ]

        (tmp_path / "hang").touch()
        while not (tmp_path / "hangs").exists():
            await asyncio.sleep(0.05)
        silent, *others = await groups(relay, tmp_path, "eval", "--timeout", "1s", "rank < 8")
        assert ([IN_C], True, "no answer within 2 s") == (silent["ranks"], silent["silent"], silent["error"])
        assert [[0, 1, 3, 4, 5, 6, 7]] == [group["ranks"] for group in others]


async def console(editor: DapClient, thread: dict[str, int], text: str) -> str:
    """Return what the debug console shows for an input."""
    frame = (await editor.request("stackTrace", {**thread, "levels": 1}, within=60))["stackFrames"][0]["id"]
    arguments = {"expression": text, "frameId": frame, "context": "repl"}
    return (await editor.request("evaluate", arguments, within=60))["result"]


async def test_console_of_all_ranks(relay: LocalRelay, tmp_path: Path):
    """The debug console of the session of all ranks has the same commands."""
    port, *_, all_ranks = consecutive_ports(3)
    script = tmp_path / "train.py"
    async with ranks(relay, tmp_path, port, 2), running_client(relay, tmp_path, "--all-ranks", str(all_ranks)):
        line = SCRIPT.splitlines().index("    return inner") + 1
        async with await DapClient.connect("127.0.0.1", all_ranks, within=60) as editor:
            await editor.attach({str(script): [{"line": line}]}, justMyCode=False, within=60)
            thread = {"threadId": (await editor.wait_for_event("stopped", within=60))["body"]["threadId"]}
            assert "ranks 0-1  0.312" in await console(editor, thread, "@all loss")
            assert "ranks 0-1  equal, checksum " in await console(editor, thread, "@diff weights")
            assert "mean 3 of 2,048" in await console(editor, thread, "@stats weights['layers.3.weight']")
            await editor.request("disconnect", {"terminateDebuggee": False}, within=60)


async def test_rank_that_an_editor_has_stopped(relay: LocalRelay, tmp_path: Path):
    """An expression sees the names of the frame in which a rank is stopped, and does not disturb the editor."""
    port = consecutive_ports(2)[0]
    script = tmp_path / "train.py"
    async with ranks(relay, tmp_path, port, 2), running_client(relay, tmp_path, "--ports", str(port)):
        line = SCRIPT.splitlines().index("    return inner") + 1
        async with await DapClient.connect("127.0.0.1", port, within=60) as editor:
            await editor.attach({str(script): [{"line": line}]}, justMyCode=False, within=60)
            thread = {"threadId": (await editor.wait_for_event("stopped", within=60))["body"]["threadId"]}
            found = await groups(relay, tmp_path, "eval", "inner // step, rank")
            running, stopped = found
            assert ([1], "__main__") == (running["ranks"], running["place"])
            assert "NameError: name 'inner' is not defined" == running["error"]
            assert ([0], "(2, 0)", f"work train.py:{line}") == (stopped["ranks"], stopped["text"], stopped["place"])
            assert "rank 0  (2, 0)" in await console(editor, thread, "@all inner // step, rank")
            assert "element 100: 0.5, others 17" not in await console(editor, thread, "@diff weights")
            shown = await console(editor, thread, "@stats weights['layers.3.weight']")
            assert "ndarray[64, 32] float32: min 3 max 3 mean 3 of 2,048" == shown
            await editor.request("next", thread, within=60)
            await editor.wait_for_event("stopped", within=60)
            assert "0" == (await groups(relay, tmp_path, "eval", "--ranks", "0", "rank"))[0]["text"]
            await editor.request("disconnect", {"terminateDebuggee": False}, within=60)

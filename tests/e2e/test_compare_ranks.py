"""Facts about one expression in many ranks, of which one has a wrong weight, one hangs in C and one is stopped."""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap import DapClient
from tests.support.editors.stopped import Stopped
from tests.support.jobs.processes import suspend
from tests.support.jobs.running import access, running_client, running_ranks
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import Finished, run
from tests.support.network.relay import HC, LocalRelay

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
close = np.array([0.25, 0.5 + 2**-40 * (rank == {WRONG})])


def slow():
    time.sleep(3600)


def work(step):
    inner = step * 2
    time.sleep(0.02)
    return inner


(here / f"ready-{{rank}}").write_text(str(os.getpid()))
step = 0
while True:
    step += 1
    work(step)
    if rank == {IN_C} and (here / "hang").exists():
        (here / "hangs").touch()
        ctypes.PyDLL(None).sleep(3600)
"""


@contextlib.asynccontextmanager
async def ranks(relay: LocalRelay, directory: Path, port: int, number: int = RANKS) -> AsyncIterator[None]:
    """Run some processes; the block begins when all of them train and a client finds them."""
    script = directory / "train.py"
    script.write_text(SCRIPT)
    async with running_ranks(relay, script, number, "--port", str(port)):
        yield


async def test_two_jobs(relay: LocalRelay, tmp_path: Path):
    """Ranks of two jobs are shown with their ports; a port chooses one of them for `eval` and for `pdb`."""
    ports = [consecutive_ports(1)[0] for _ in range(2)]
    async with contextlib.AsyncExitStack() as stack:
        for name, port in zip(("one", "two"), ports, strict=True):
            (tmp_path / name).mkdir()
            await stack.enter_async_context(ranks(relay, tmp_path / name, port, 1))
        # Waits until the second job has registered.
        pdb = await ask(relay, tmp_path, "pdb", "--port", str(ports[1]), stdin=b"p here.name\nq\n")
        assert [f"attaching to port {ports[1]};", "'two'", f"detached; port {ports[1]} continues"] == [
            line.partition(" h shows")[0]
            for line in pdb.stdout.splitlines()
            if line.startswith(("attaching", "'", "detached"))
        ], pdb
        both = await ask(relay, tmp_path, "eval", "here.name")
        lines = {f"rank 0 (port {port})  '{name}'" for name, port in zip(("one", "two"), ports, strict=True)}
        assert lines == set(both.stdout.splitlines()[:2])
        assert f"choose one by the ports of its processes, as in --ports {min(ports)}\n" in both.stderr
        one = await ask(relay, tmp_path, "eval", "--ports", str(ports[1]), "here.name")
        assert ("rank 0  'two'", False) == (one.stdout.splitlines()[0], "hint:" in one.stderr)
        arrays = "{name: __import__('numpy').zeros(4) for name in here.name}"
        different = await ask(relay, tmp_path, "diff", arrays)
        first = f"rank 0 (port {ports[0]})  first differs at 'o': 'o' (4,) float64 instead of 't' (4,) float64"
        assert first == different.stdout.splitlines()[0], different
        none = await ask(relay, tmp_path, "eval", "--port", "1", "here.name")
        assert "no matching process is registered" in none.stderr
        refused = await ask(relay, tmp_path, "pdb", "0")
        assert "rank 0 exists in 2 jobs: port " in refused.stderr
        assert "hint: choose one, as in 'relay-client pdb --port " in refused.stderr


async def ask(relay: LocalRelay, directory: Path, *arguments: str, stdin: bytes = b"") -> Finished:
    client = access(relay, directory, "send")
    return await run("relay_client", "--hc", HC, *arguments, env=client, stdin=stdin)


async def groups(relay: LocalRelay, directory: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return the groups of `--json`."""
    found = await ask(relay, directory, *arguments, "--json")
    has_value = any(not group["error"] for group in json.loads(found.stdout or "{}").get("groups", []))
    assert (0 if has_value else 17) == found.status, found.stderr
    return json.loads(found.stdout)["groups"]


async def test_odd_rank_is_named_first(relay: LocalRelay, tmp_path: Path):
    """Values are grouped, the odd one first; a wrong weight is found by name and element; a silent rank is a row."""
    port = consecutive_ports(RANKS)[0]
    async with ranks(relay, tmp_path, port):
        loss = await ask(relay, tmp_path, "eval", "loss")
        shown = ["rank 5         nan", "ranks 0-4,6-7  0.312", "", "evaluated in __main__"]
        assert shown == loss.stdout.splitlines(), loss.stderr
        close = await ask(relay, tmp_path, "eval", "close")
        assert ["rank 5         [0.25, 0.5000000000009095]", "ranks 0-4,6-7  [0.25, 0.5]"] == [
            line.partition(" ndarray[2] float64")[0] for line in close.stdout.splitlines()[:2]
        ]
        difference = await ask(relay, tmp_path, "diff", "weights")
        assert (
            "rank 5         first differs at 'layers.17.weight' (64, 32) float32, element 100: 0.5 instead of 17"
            == difference.stdout.splitlines()[0]
        )
        assert difference.stdout.splitlines()[1].startswith("ranks 0-4,6-7  reference value, checksum ")

        few = await groups(relay, tmp_path, "eval", "--ranks", "0,3-4", "rank")
        assert [[0], [3], [4]] == [group["ranks"] for group in few]
        failed = await groups(relay, tmp_path, "eval", "--ranks", "0-1", "missing")
        assert [([0, 1], "NameError: name 'missing' is not defined")] == [(g["ranks"], g["error"]) for g in failed]
        alone = await ask(relay, tmp_path, "eval", "--ranks", "0", "missing")
        assert (17, "rank 0  no value: NameError: name 'missing' is not defined") == (
            alone.status,
            alone.stdout.splitlines()[0],
        )
        assert alone.stderr.endswith("'relay-client stacks --locals' shows those variables\n")
        late = await groups(relay, tmp_path, "eval", "--ranks", "0-1", "--timeout", "5s", "slow() if rank else 7")
        assert [([1], "the evaluation took longer than 5 s", ""), ([0], "", "7")] == [
            (group["ranks"], group["error"], group["text"]) for group in late
        ]

        (tmp_path / "hang").touch()
        while not (tmp_path / "hangs").exists():
            await asyncio.sleep(0.05)
        silent, *others = await groups(relay, tmp_path, "eval", "--timeout", "5s", "rank < 8")
        assert ([IN_C], True, "no answer within 6 s") == (silent["ranks"], silent["silent"], silent["error"])
        assert [[0, 1, 3, 4, 5, 6, 7]] == [group["ranks"] for group in others]


async def main_threads(editor: DapClient) -> list[str]:
    """Return the names of the main threads of attached ranks."""
    threads = (await editor.request("threads", within=DEADLINE))["threads"]
    return [thread["name"] for thread in threads if "MainThread" in thread["name"]]


async def test_stopped_rank_is_a_row(relay: LocalRelay, tmp_path: Path):
    """A rank that SIGSTOP has stopped is a silent row of values and of comparisons, on the terminal and in the console.

    A comparison, whose time limit is a minute, does not wait that long for it.
    """
    port, *_, all_ranks = consecutive_ports(4)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(ranks(relay, tmp_path, port, 3))
        await stack.enter_async_context(running_client(relay, tmp_path, "--all-ranks", str(all_ranks)))
        async with await DapClient.connect("127.0.0.1", all_ranks, within=DEADLINE) as editor:
            await editor.attach({}, within=DEADLINE)
            while len(await main_threads(editor)) != 3:
                await editor.wait_for_event("thread", within=DEADLINE)
            pid = int((tmp_path / "ready-1").read_text())
            await suspend(pid)
            try:
                values, compared, *shown = await asyncio.gather(
                    groups(relay, tmp_path, "eval", "--ranks", "all", "--timeout", "2s", "weights is None"),
                    groups(relay, tmp_path, "diff", "--ranks", "0-1", "weights"),
                    *(
                        editor.request("evaluate", {"expression": text, "context": "repl"}, within=DEADLINE)
                        for text in ("@all 7", "@diff rank < 8")
                    ),
                )
            finally:
                os.kill(pid, signal.SIGCONT)
            await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
    assert [([1], "no answer within 3 s"), ([0, 2], "")] == [(each["ranks"], each["error"]) for each in values]
    assert [([1], "no answer within 10 s"), ([0], "")] == [(each["ranks"], each["error"]) for each in compared]
    assert values[0]["silent"] is compared[0]["silent"] is True
    for table in (each["result"].splitlines() for each in shown):
        assert re.match(r"rank 1 +no value: no answer within (6|10) s$", table[0]), table
        assert table[1].startswith("ranks 0,2 "), table


@contextlib.asynccontextmanager
async def stopped_editor(directory: Path, port: int) -> AsyncIterator[tuple[Stopped, int]]:
    """Attach an editor and stop at `return inner`; yields the editor and the line."""
    line = SCRIPT.splitlines().index("    return inner") + 1
    async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
        await editor.attach({str(directory / "train.py"): [{"line": line}]}, justMyCode=False, within=DEADLINE)
        stopped = Stopped(editor)
        await stopped.until_stopped()
        yield stopped, line
        await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


async def test_console_of_all_ranks(relay: LocalRelay, tmp_path: Path):
    """The debug console of the session of all ranks has the same commands."""
    port, *_, all_ranks = consecutive_ports(3)
    async with (
        ranks(relay, tmp_path, port, 2),
        running_client(relay, tmp_path, "--all-ranks", str(all_ranks)),
        stopped_editor(tmp_path, all_ranks) as (editor, _),
    ):
        assert "ranks 0-1  0.312" in await editor.value("@all loss", "repl")
        assert "ranks 0-1  equal, checksum " in await editor.value("@diff weights", "repl")
        assert "mean 3 of 2,048" in await editor.value("@stats weights['layers.3.weight']", "repl")
        assert "ranks 0-1: torch is not imported" in await editor.value("@hang", "repl")


async def test_rank_that_an_editor_has_stopped(relay: LocalRelay, tmp_path: Path):
    """An expression sees the names of the frame in which a rank is stopped or runs, and does not disturb the editor."""
    port = consecutive_ports(2)[0]
    async with (
        ranks(relay, tmp_path, port, 2),
        running_client(relay, tmp_path, "--ports", str(port)),
        stopped_editor(tmp_path, port) as (editor, line),
    ):
        found = await groups(relay, tmp_path, "eval", "inner // step, rank")
        while found[0]["error"]:  # rank 1 is between two calls of the function
            found = await groups(relay, tmp_path, "eval", "inner // step, rank")
        stopped, running = found
        assert ([0], "(2, 0)", f"work train.py:{line}") == (stopped["ranks"], stopped["text"], stopped["place"])
        assert ([1], "(2, 1)", "work train.py (running)") == (running["ranks"], running["text"], running["place"])
        shown = await editor.value("@all nowhere if rank else (inner // step, rank)", "repl")
        assert "rank 0  (2, 0)" in shown
        assert "\nhint: in rank 1, 'nowhere' is neither a global variable of the program nor" in shown
        assert "element 100: 0.5 instead of 17" not in await editor.value("@diff weights", "repl")
        shown = await editor.value("@stats weights['layers.3.weight']", "repl")
        assert "ranks 0-1: torch is not imported" in await editor.value("@hang", "repl")
        assert "ndarray[64, 32] float32: min 3 max 3 mean 3 of 2,048" == shown
        assert " train.py " in await editor.value("@ranks", "repl")
        for text in ("@help", "@group 0", "@all"):
            assert (await editor.value(text, "repl")).startswith("use @ranks, ")
        await editor.move("next")
        assert "0" == (await groups(relay, tmp_path, "eval", "--ranks", "0", "rank"))[0]["text"]

"""Facts about `relay-client mcp`, used by the official client of the MCP SDK over stdio against real jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relay_client.dap import DapClient
from relay_core.compat import timeout
from relay_core.program.parser import installed_version
from tests.support.jobs.hang_job import hang_job, line_of
from tests.support.jobs.running import access, running_client, running_ranks, until_registered
from tests.support.jobs.torch_job import needs_torch
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import REPOSITORY, environment, program
from tests.support.network.relay import HC, LocalRelay

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.e2e

RANKS = 4
WRONG = 2
SCRIPT = f"""\
import os
import time
from pathlib import Path

import numpy as np

rank = int(os.environ["RELAY_RANK"])
here = Path(__file__).parent


class Model:
    def __init__(self):
        self.weights = {{"fc.weight": np.full((64, 32), 3, "float32")}}
        self.steps = 0
        self.touched = 0

    @property
    def touch(self):
        self.touched += 1
        return self.touched


model = Model()
if rank == {WRONG}:
    model.weights["fc.weight"][3, 4] = 0.5


def work(step):
    scale = float(model.weights["fc.weight"][3, 4])
    time.sleep(0.02)
    return scale * step


class Sampler:
    def __init__(self):
        self.offset = 7 if rank == {WRONG} else 0


class Loader:
    def __init__(self):
        self.sampler = Sampler()


class Trainer:
    def __init__(self):
        self.loader = Loader()

    def fit(self):
        while True:
            model.steps += 1
            work(model.steps)


def main():
    trainer = Trainer()
    (here / f"ready-{{rank}}").touch()
    trainer.fit()


main()
"""
LINE = SCRIPT.splitlines().index("    time.sleep(0.02)") + 1


@contextlib.asynccontextmanager
async def job(relay: LocalRelay, directory: Path) -> AsyncIterator[int]:
    """Run four ranks, and yield the port of the first; all of them train, and a client finds them."""
    port = consecutive_ports(RANKS)[0]
    (script := directory / "train.py").write_text(SCRIPT)
    async with running_ranks(relay, script, RANKS, "--port", str(port)):
        yield port


@contextlib.asynccontextmanager
async def agent(relay: LocalRelay, directory: Path, *options: str) -> AsyncIterator[Client]:
    """Yield a coding agent's client of a server that it has started."""
    from mcp import Client, StdioServerParameters  # takes a second, which every worker would spend
    from mcp.client.stdio import stdio_client

    command = ("-m", "relay_client", "--hc", HC, "mcp", "--audit-file", str(directory / "audit.jsonl"), *options)
    variables = environment(**access(relay, directory, "send"), PYTHONPATH=str(REPOSITORY))
    parameters = StdioServerParameters(command=sys.executable, args=list(command), env=variables)
    transport = stdio_client(parameters, errlog=sys.stderr)  # the default is where the importing test wrote
    async with Client(transport, read_timeout_seconds=DEADLINE) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """Return the items of a result."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content[0].text
    return found.structured_content["items"]


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """Return why a call was refused."""
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found.structured_content
    return found.content[0].text


def audit(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "audit.jsonl").read_text().splitlines()]


async def test_planted_bug_is_found_by_reading(relay: LocalRelay, tmp_path: Path):
    """A coding agent that only reads finds the rank with the wrong weight; control is refused, and calls recorded."""
    async with job(relay, tmp_path), agent(relay, tmp_path) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {
            *("ranks", "stacks", "hang_verdict", "variables", "evaluate", "compare", "wait_for_stop"),
            *("set_breakpoints", "watch", "continue_execution", "step", "detach"),
        } == set(tools)
        assert "expression" in tools["evaluate"].input_schema["required"]

        assert [0, 1, 2, 3] == [item["rank"] for item in await call(client, "ranks")]
        stacks = await call(client, "stacks")
        assert {0, 1, 2, 3} == {rank for group in stacks for rank in group["ranks"]}
        assert not {"ports", "pids", "hosts"} & {name for group in stacks for name in group}
        assert [["ranks 0-3: torch is not imported"]] == [job["text"] for job in await call(client, "hang_verdict")]
        odd, others = await call(client, "compare", expression="model.weights")
        assert [WRONG] == odd["ranks"]
        assert [0, 1, 3] == others["ranks"]
        difference = odd["difference"]
        assert ("fc.weight", 100, "0.5", "3") == (
            difference["leaf"],
            difference["element"],
            difference["value"],
            difference["others"],
        )
        frames = await call(client, "variables", rank=WRONG)
        work = next((frame for frame in frames if frame["function"] == "work"), None)
        assert work is None or work["locals"].get("scale") in {"0.5", None}

        assert any(frame["locals"].get("self", "").startswith("Trainer(loader=Loader(sampler=") for frame in frames)
        odd, others = await call(client, "evaluate", expression="self.loader.sampler.__dict__")
        assert ([WRONG], "{'offset': 7}") == (odd["ranks"], odd["text"])
        assert ("{'offset': 0}", "fit train.py (running)") == (others["text"], others["place"])
        odd, _others = await call(client, "compare", expression="trainer.loader.sampler.offset")
        assert ([WRONG], "7") == (odd["ranks"], odd["difference"]["value"])

        (unknown,) = await call(client, "evaluate", expression="nowhere")
        assert ("NameError: name 'nowhere' is not defined", True) == (
            unknown["error"],
            "'variables'" in unknown["hint"],
        )
        assert "rank: Input should be greater than or equal to 0" == await refusal(client, "variables", rank=-1)
        assert "changes how the job runs" in await refusal(client, "set_breakpoints", file="train.py", lines=[LINE])
        for tool, arguments in {"continue_execution": {}, "step": {}, "detach": {}, "watch": {"place": "nan"}}.items():
            assert "--allow-control" in await refusal(client, tool, **arguments)
        assert "could execute code" in await refusal(client, "evaluate", expression="model.weights.clear()")
        (refused,) = await call(client, "evaluate", expression="model.touch")
        assert "reading 'touch' of Model would execute code" in refused["error"]
        (untouched,) = await call(client, "evaluate", expression="model.touched")
        assert ([0, 1, 2, 3], "0") == (untouched["ranks"], untouched["text"])
        assert not any(item["stopped"] for item in await call(client, "wait_for_stop", seconds=0.5))
        assert "seconds" in await refusal(client, "wait_for_stop", seconds=1000)
        assert "no process has rank 9" in await refusal(client, "stacks", ranks="9")

    records = audit(tmp_path)
    assert ("compare", "all", {"expression": "model.weights"}, "ok") == next(
        (one["tool"], one["ranks"], one["arguments"], one["outcome"]) for one in records if one["tool"] == "compare"
    )
    assert {
        "set_breakpoints": "refused",
        "step": "refused",
        "stacks": "failed",
        "wait_for_stop": "invalid",
    }.items() <= {one["tool"]: one["outcome"] for one in records}.items()
    assert 0o600 == (tmp_path / "audit.jsonl").stat().st_mode & 0o777


@needs_torch
@pytest.mark.usefixtures("torch_import")
async def test_hang_is_explained_by_reading(relay: LocalRelay, tmp_path: Path):
    """A coding agent that only reads finds which rank of a torch job has skipped an all_reduce, and where it is."""
    async with hang_job(relay, tmp_path, "skip") as torch_job, agent(relay, tmp_path) as client:
        await torch_job.until_ready()
        await until_registered(relay, tmp_path, 4)
        found: dict[str, Any] = {"groups": []}
        async with timeout(DEADLINE):
            while [[0, 1, 3]] != [group["entered"] for group in found["groups"]]:
                (found,) = await call(client, "hang_verdict")
        (text,), (group,) = found["text"], found["groups"]
        (skips,) = await call(client, "stacks", ranks="2")
    place = line_of("skip: elsewhere")
    assert text.startswith(
        "group 'default' (4 ranks): collective #6 all_reduce [16] float32; entered by ranks 0-1,3 at"
    )
    assert text.endswith(f"missing rank 2, which is at {place} (blocked in a call)")
    assert ("default", [0, 1, 2, 3], 6, [2], []) == tuple(
        group[name] for name in ("name", "ranks", "number", "missing", "unknown")
    )
    assert place == next(f"train.py:{one['line']} in {one['function']}" for one in skips["threads"][0]["frames"][::-1])


async def test_control_that_is_permitted(relay: LocalRelay, tmp_path: Path):
    """With --allow-control ranks stop at a breakpoint, are read, step and continue; then the job runs on."""
    script = str(tmp_path / "train.py")
    async with job(relay, tmp_path):
        async with agent(relay, tmp_path, "--allow-control") as client:
            place = f"train.py:{LINE}"
            options = {"place": place, "expression": "scale", "hits": 4, "capture": True, "seconds": 60}
            (hit, *_more) = [item for item in await call(client, "watch", **options, ranks="2") if "note" not in item]
            assert ("0.5", "0.5") == (hit["text"], hit["frames"][-1]["locals"]["scale"])
            *_, note = await call(client, "watch", place=place, when="scale > 5", ranks="0", seconds=2)
            assert "but the condition has not been true" in note["note"]
            assert "invalid place: 'train.py'" in await refusal(client, "watch", place="train.py")
            set_in = await call(
                client, "set_breakpoints", file=script, lines=[LINE], condition="rank == 2", ranks="2-3"
            )
            assert [2, 3] == [item["rank"] for item in set_in]
            assert all(item["breakpoints"][0]["verified"] for item in set_in)
            stopped, running = await call(client, "wait_for_stop", ranks="2-3", seconds=60)
            assert (2, True) == (stopped["rank"], stopped["stopped"])
            assert f"train.py:{LINE} in work" == stopped["place"]
            assert (3, False) == (running["rank"], running["stopped"])
            innermost = (await call(client, "variables", rank=2))[0]
            assert ("work", LINE, "0.5") == (innermost["function"], innermost["line"], innermost["locals"]["scale"])
            (value,) = await call(client, "evaluate", expression="round(scale * 2, 3)", ranks="2")
            assert "1.0" == value["text"]
            (late,) = await call(client, "evaluate", expression="time.sleep(3600)", ranks="3", seconds=1)
            assert "the evaluation took longer than 1 s" == late["error"]
            (after,) = await call(client, "step", ranks="2", seconds=60)
            assert (2, True, LINE + 1) == (after["rank"], after["stopped"], after["line"])
            assert [{"rank": 2, "stopped": False}] == await call(client, "continue_execution", ranks="2")
            assert (await call(client, "wait_for_stop", ranks="2", seconds=60))[0]["stopped"]
            assert [{"rank": 2, "detached": True}] == await call(client, "detach", ranks="2")
            assert "" == (await call(client, "wait_for_stop", ranks="2", seconds=1))[0]["reason"]
            await until_steps_advance(client, "2")
        async with agent(relay, tmp_path) as client:  # the first server has ended, and has detached from rank 3
            await until_steps_advance(client, "0-3")


async def until_steps_advance(client: Client, ranks: str) -> None:
    """Wait until every chosen rank has trained a further step."""

    async def steps() -> dict[int, int]:
        groups = await call(client, "evaluate", expression="model.steps", ranks=ranks)
        return {rank: int(group["text"]) for group in groups for rank in group["ranks"]}

    before = await steps()
    while not all(now > before[rank] for rank, now in (await steps()).items()):
        await asyncio.sleep(0.1)


async def test_rank_that_an_editor_holds(relay: LocalRelay, tmp_path: Path):
    """A rank that an editor has stopped is read where it stands; control of it is refused with the editor's user."""
    script = str(tmp_path / "train.py")
    async with (
        job(relay, tmp_path) as port,
        running_client(relay, tmp_path, "--ports", str(port + WRONG)),
        agent(relay, tmp_path, "--allow-control") as client,
        await DapClient.connect("127.0.0.1", port + WRONG, within=DEADLINE) as editor,
    ):
        await editor.attach({script: [{"line": LINE}]}, justMyCode=False, within=DEADLINE)
        thread = {"threadId": (await editor.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}
        (stopped,) = await call(client, "wait_for_stop", ranks="2", seconds=60)
        assert (True, f"train.py:{LINE} in work") == (stopped["stopped"], stopped["place"])
        assert stopped["holder"]
        (value,) = await call(client, "evaluate", expression="scale", ranks="2")
        assert ("0.5", f"work train.py:{LINE}") == (value["text"], value["place"])
        refused = await refusal(client, "set_breakpoints", file=script, lines=[LINE], ranks="2-3")
        assert f"rank 2 is being debugged by {stopped['holder']} (since " in refused
        assert "rank 2 is being debugged by" in await refusal(client, "continue_execution", ranks="2")
        await editor.request("next", thread, within=DEADLINE)
        after = await editor.wait_for_event("stopped", within=DEADLINE)
        assert "step" == after["body"]["reason"]
        await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


async def test_signal_while_stdin_is_open(relay: LocalRelay, tmp_path: Path):
    """SIGTERM ends the server, although its host has not closed stdin."""
    client = access(relay, tmp_path, "send")
    options = ("--hc", HC, "mcp", "--audit-file", str(tmp_path / "audit.jsonl"))
    async with program("relay_client", *options, env=client, has_stdin=True) as server:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        server.process.stdin.write(json.dumps(request).encode() + b"\n")
        answer = json.loads(await asyncio.wait_for(server.process.stdout.readline(), DEADLINE))
        about = answer["result"]["serverInfo"]
        assert ("relay-debug", installed_version()) == (about["name"], about["version"])
        server.process.send_signal(signal.SIGTERM)
        assert 0 == await asyncio.wait_for(server.process.wait(), DEADLINE)

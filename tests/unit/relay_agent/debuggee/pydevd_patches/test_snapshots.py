"""Facts about `@snap` and `@hold`: a logpoint that captures variables, and one that stops the thread."""

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from relay_client.dap import DapClient
from relay_core.dap.messages import FIRST_SNAPSHOT
from tests.support.debuggers.armed import waiting_script
from tests.support.machine.deadline import DEADLINE

PROGRAM = """\
import sys, time

class Loud:
    def __init__(self):
        self.size = 3
    def __repr__(self):
        print("called", file=sys.stderr)
        return "loud"

def train_step(count, loud, token):
    squares = [n * count for n in (1, 2)]
    return squares

def main():
    loud, token = Loud(), "hunter2-7c9e6679"
    count = 0
    while True:
        count += 1
        train_step(count, loud, token)
        time.sleep(PAUSE)

main()
"""
STEP = PROGRAM.splitlines().index("    squares = [n * count for n in (1, 2)]") + 1


@contextlib.asynccontextmanager
async def logging_script(directory: Path, log_message: str, pause: float = 0.02, **fields: Any) -> AsyncIterator[Any]:
    """Run the program with one logpoint."""
    wanted = {"line": STEP, "logMessage": log_message, **fields}
    async with (
        waiting_script(directory, PROGRAM.replace("PAUSE", str(pause))) as (running, port),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client,
    ):
        await client.attach({str(directory / "program.py"): [wanted]}, within=DEADLINE)
        yield running, client


async def output(client: DapClient, text: str) -> dict[str, Any]:
    """Return the body of the next output that contains a text."""
    event = await client.wait_for_event("output", matching=lambda body: text in body["output"], within=DEADLINE)
    return event["body"]


async def below(client: DapClient, reference: int) -> list[tuple[str, str, int]]:
    """Return what the editor shows below a reference."""
    body = await client.request("variables", {"variablesReference": reference}, within=DEADLINE)
    return [(each["name"], each["value"], each["variablesReference"]) for each in body["variables"]]


async def test_values_of_a_running_process(tmp_path: Path) -> None:
    """A snapshot is a line with frames and values, without secrets and without a call of the job's code."""
    async with logging_script(tmp_path, "@snap loss {count / 2}") as (running, client):
        body = await output(client, "snapshot 2")
        clock = r"\d\d:\d\d:\d\d"
        line = rf"snapshot 2 at program\.py:{STEP} in train_step, {clock}: loss \d+\.\d\n"
        assert re.fullmatch(line, body["output"])
        assert (STEP, str(tmp_path / "program.py")) == (body["line"], body["source"]["path"])
        [(_, text, frames)] = await below(client, body["variablesReference"])
        assert body["output"] == f"{text}\n"
        inner, outer, *_ = await below(client, frames)
        assert ("train_step", f"program.py:{STEP}") == inner[:2]
        assert "main" == outer[0]
        values = {name: value for name, value, _ in await below(client, inner[2])}
        assert {"loud": "Loud(size=3)", "token": "***"}.items() <= values.items()
        assert float(body["output"].split()[-1]) == int(values["count"]) / 2
        [first, *_] = body["data"]["snapshot"]
        assert ["train_step", str(tmp_path / "program.py"), STEP, [*map(list, values.items())]] == first
        await client.request("disconnect", within=DEADLINE)
        running.process.kill()
        _, _, log = await running.finish()
    assert "called" not in log


async def test_condition(tmp_path: Path) -> None:
    """A snapshot is taken only if the condition is true; until then, the message is not evaluated either."""
    message = "@snap {1 / (count // 5)}"
    async with logging_script(tmp_path, message, condition="count == 7") as (_, client):
        event = await client.wait_for_event(
            "output", matching=lambda body: body.get("category") != "telemetry", within=DEADLINE
        )
        assert re.match(rf"snapshot 1 at program\.py:{STEP} .*: 1\.0\n", event["body"]["output"])


async def test_line_that_is_reached_often(tmp_path: Path) -> None:
    """The rate is limited, which is reported once; the values of the oldest snapshots are then forgotten."""
    async with logging_script(tmp_path, "@snap", pause=0) as (_, client):
        first = await output(client, "snapshot 1 ")
        report = await output(client, "relay-agent: ")
        assert report["output"] == (
            f"relay-agent: the logpoint at program.py:{STEP} is reached too often to take a snapshot each time, so "
            "some are left out\n"
        )
        values: dict[str, str] = {}
        while not values:  # this client may be so late that those of a snapshot are forgotten
            later = await output(client, "snapshot ")
            if int(later["output"].split()[1]) > 100:
                values = dict(each[:2] for each in await below(client, later["variablesReference"] + 2))
        assert int(values["count"]) > 1000
        assert [("snapshot 1", "the job has deleted this snapshot", 0)] == await below(
            client, first["variablesReference"]
        )


async def test_hold(tmp_path: Path) -> None:
    """A logpoint with `@hold` writes its text and stops the thread, as a breakpoint with its condition."""
    async with logging_script(tmp_path, "@hold at {count}", condition="count == 7") as (_, client):
        stopped = await client.wait_for_event("stopped", within=DEADLINE)
        assert "breakpoint" == stopped["body"]["reason"]
        assert "at 7\n" == (await output(client, "at "))["output"]


async def test_other_words(tmp_path: Path) -> None:
    """Only the words `@snap` and `@hold` at the beginning are commands."""
    async with logging_script(tmp_path, "@snapped @hold {count}") as (_, client):
        assert (await output(client, "@"))["output"].startswith("@snapped @hold 1\n")


async def test_reference_of_no_snapshot(tmp_path: Path) -> None:
    """A reference that is not in use has nothing below it but the reason."""
    async with logging_script(tmp_path, "@snap") as (_, client):
        await output(client, "snapshot 1 ")
        assert [("snapshot 100000", "the job has deleted this snapshot", 0)] == await below(
            client, FIRST_SNAPSHOT + 1_000_000
        )

"""Facts about how pydevd shows values: described by type and shape, and without waiting for a slow one."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap.client import DapClient
from tests.support.deadline import DEADLINE
from tests.support.jobs import Job, job

CODE = """
    import runpy, threading
    from relay_agent.debuggee.debugger import debugger
    debugger.shows_values = sys.argv[2] == "on"
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    runpy.run_path(sys.argv[1])
"""
SLOW = """\
import time

class Slow:
    def __repr__(self):
        time.sleep(3600)
        return "slow"

class Failing:
    def __repr__(self):
        raise ValueError("no text")

class Quick:
    def __repr__(self):
        return "quick"

def work():
    slow, failing, quick, number = Slow(), Failing(), Quick(), 7
    several = [Slow() for _ in range(20)]
    nested = {"a": slow, "b": quick}
    number += 1
    return number

print(work(), flush=True)
"""
ARRAYS = """\
import numpy

def work():
    array = numpy.zeros((300, 200), dtype="float32")
    both = [array, array]
    number = 1
    return number

work()
"""
SHOWN = "ndarray[300, 200] float32"


def line_of(script: Path, text: str) -> int:
    return next(number for number, line in enumerate(script.read_text().splitlines(), 1) if text in line)


@dataclass
class Session:
    """A program that a debugger has stopped."""

    program: Job
    client: DapClient
    thread: dict[str, int]
    """The argument that names the stopped thread."""
    frame: int
    """The id of its top frame at the first stop."""


@contextlib.asynccontextmanager
async def stopped(directory: Path, source: str, before: str, setting: str = "on") -> AsyncIterator[Session]:
    """Run a program until the line that contains `before`; it continues at the end of the block."""
    script = directory / "program.py"
    script.write_text(source)
    async with (
        job(CODE, str(script), setting) as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        await client.attach({str(script): [{"line": line_of(script, before)}]}, justMyCode=False, within=DEADLINE)
        thread = {"threadId": (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}
        yield Session(running, client, thread, await top_frame(client, thread))
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


async def top_frame(client: DapClient, thread: dict[str, int]) -> int:
    stack = await client.request("stackTrace", {**thread, "levels": 1}, within=DEADLINE)
    return stack["stackFrames"][0]["id"]


async def variables(client: DapClient, frame: int) -> dict[str, str]:
    scopes = (await client.request("scopes", {"frameId": frame}, within=DEADLINE))["scopes"]
    reference = {"variablesReference": scopes[0]["variablesReference"]}
    found = (await client.request("variables", reference, within=DEADLINE))["variables"]
    return {variable["name"]: variable["value"] for variable in found}


async def evaluate(client: DapClient, frame: int, expression: str, context: str) -> Any:
    arguments = {"expression": expression, "frameId": frame, "context": context}
    return (await client.request("evaluate", arguments, within=DEADLINE))["result"]


async def test_slow_repr_delays_nothing(tmp_path: Path):
    """A `__repr__` that sleeps for an hour, in many places, delays neither variables nor a step nor a continue."""
    async with stopped(tmp_path, SLOW, "number += 1") as session:
        client, thread = session.client, session.thread
        found = await variables(client, session.frame)
        assert "7" == found["number"]
        assert "quick" == found["quick"]
        assert "Failing object at 0x" in found["failing"]
        assert found["slow"].startswith("<Slow: ")
        assert found["several"].startswith("[<Slow: ")
        assert found["nested"].startswith("{'a': <Slow: ")
        assert found["nested"].endswith("'b': quick}")
        await client.request("next", thread, within=DEADLINE)
        await client.wait_for_event("stopped", within=DEADLINE)
        assert "8" == (await variables(client, await top_frame(client, thread)))["number"]
        await client.request("continue", thread, within=DEADLINE)
        assert "8" == await session.program.line()


@pytest.mark.parametrize("context", ["watch", "hover", "variables"])
async def test_arrays_are_described(tmp_path: Path, context: str):
    """An array is shown by type, shape and dtype, in a list too."""
    async with stopped(tmp_path, ARRAYS, "number = 1") as session:
        assert SHOWN == await evaluate(session.client, session.frame, "array", context)
        assert f"[{SHOWN}, {SHOWN}]" == (await variables(session.client, session.frame))["both"]


@pytest.mark.parametrize("context", ["repl", "clipboard"])
async def test_contents_on_request(tmp_path: Path, context: str):
    """In the Debug Console and for the clipboard, an array is shown by its contents."""
    async with stopped(tmp_path, ARRAYS, "number = 1") as session:
        shown = await evaluate(session.client, session.frame, "array", context)
        assert shown.startswith("array([[0., 0., 0., ...")


async def test_setting_off(tmp_path: Path):
    """Without the setting, debugpy formats values itself."""
    async with stopped(tmp_path, ARRAYS, "number = 1", setting="off") as session:
        assert (await variables(session.client, session.frame))["array"].startswith("array([[0., 0., 0., ...")

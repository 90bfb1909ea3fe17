"""Facts about how pydevd shows values: by what they are, and none of them holds up the others."""

import time
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap.client import DapClient
from tests.support.jobs import job

CODE = """
    import runpy, threading
    from relay_agent.debuggee.debugger import debugger
    debugger.shows_values = sys.argv[2] == "on"
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(60, threading.Event())
    runpy.run_path(sys.argv[1])
"""
SLOW = """\
import time

class Slow:
    def __repr__(self):
        time.sleep(60)
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


async def stop(client: DapClient, script: Path, text: str) -> tuple[dict[str, int], int]:
    """Stop before the line with a text; return the arguments that name the thread, and the id of its top frame."""
    line = line_of(script, text)
    await client.attach({str(script): [{"line": line}]}, justMyCode=False, within=60)
    thread = {"threadId": (await client.wait_for_event("stopped", within=60))["body"]["threadId"]}
    return thread, await top_frame(client, thread)


async def top_frame(client: DapClient, thread: dict[str, int]) -> int:
    stack = await client.request("stackTrace", {**thread, "levels": 1}, within=60)
    return stack["stackFrames"][0]["id"]


async def variables(client: DapClient, frame: int) -> dict[str, str]:
    scopes = (await client.request("scopes", {"frameId": frame}, within=60))["scopes"]
    reference = {"variablesReference": scopes[0]["variablesReference"]}
    found = (await client.request("variables", reference, within=60))["variables"]
    return {variable["name"]: variable["value"] for variable in found}


async def evaluate(client: DapClient, frame: int, expression: str, context: str) -> Any:
    arguments = {"expression": expression, "frameId": frame, "context": context}
    return (await client.request("evaluate", arguments, within=60))["result"]


async def test_slow_repr_delays_nothing(tmp_path: Path):
    """With a `__repr__` that sleeps for a minute, in many places: variables, a step and a continue take seconds."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    async with (
        job(CODE, str(script), "on") as running,
        await DapClient.connect("127.0.0.1", int(await running.line())) as client,
    ):
        thread, frame = await stop(client, script, "number += 1")
        started = time.monotonic()
        found = await variables(client, frame)
        assert "7" == found["number"]
        assert "quick" == found["quick"]
        assert "Failing object at 0x" in found["failing"]
        assert found["slow"].startswith("<Slow: ")
        assert found["several"].startswith("[<Slow: ")
        assert found["nested"].startswith("{'a': <Slow: ")
        assert found["nested"].endswith("'b': quick}")
        await client.request("next", thread, within=60)
        await client.wait_for_event("stopped", within=60)
        assert "8" == (await variables(client, await top_frame(client, thread)))["number"]
        await client.request("continue", thread, within=60)
        assert "8" == await running.line()
        assert time.monotonic() - started < 30, "the job ran on while the late repr was asleep"
        await client.request("disconnect", {"terminateDebuggee": False}, within=60)


@pytest.mark.parametrize("context", ["watch", "hover", "variables"])
async def test_arrays_are_described(tmp_path: Path, context: str):
    """An array is shown by type, shape and dtype, in a list too."""
    script = tmp_path / "arrays.py"
    script.write_text(ARRAYS)
    async with (
        job(CODE, str(script), "on") as running,
        await DapClient.connect("127.0.0.1", int(await running.line())) as client,
    ):
        _, frame = await stop(client, script, "number = 1")
        assert SHOWN == await evaluate(client, frame, "array", context)
        assert f"[{SHOWN}, {SHOWN}]" == (await variables(client, frame))["both"]
        await client.request("disconnect", {"terminateDebuggee": False}, within=60)


@pytest.mark.parametrize("context", ["repl", "clipboard"])
async def test_contents_on_request(tmp_path: Path, context: str):
    """In the Debug Console and for the clipboard, an array is shown by its contents."""
    script = tmp_path / "arrays.py"
    script.write_text(ARRAYS)
    async with (
        job(CODE, str(script), "on") as running,
        await DapClient.connect("127.0.0.1", int(await running.line())) as client,
    ):
        _, frame = await stop(client, script, "number = 1")
        assert (await evaluate(client, frame, "array", context)).startswith("array([[0., 0., 0., ...")
        await client.request("disconnect", {"terminateDebuggee": False}, within=60)


async def test_setting_off(tmp_path: Path):
    """Without the setting, debugpy shows values as it always did."""
    script = tmp_path / "arrays.py"
    script.write_text(ARRAYS)
    async with (
        job(CODE, str(script), "off") as running,
        await DapClient.connect("127.0.0.1", int(await running.line())) as client,
    ):
        _, frame = await stop(client, script, "number = 1")
        assert (await variables(client, frame))["array"].startswith("array([[0., 0., 0., ...")
        await client.request("disconnect", {"terminateDebuggee": False}, within=60)

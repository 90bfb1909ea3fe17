"""Facts about how pydevd shows values: described by type and shape, and without waiting for a slow one."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap import DapClient
from tests.support.jobs.processes import Job, job
from tests.support.machine.deadline import DEADLINE

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
TRAINER = """\
import functools
import threading
import time

class Trainer:
    __slots__ = ("__dict__", "state")
    rate = 0.5

    def __init__(self):
        self.step = 7
        self.state = "ready"

    def __repr__(self):
        return "a trainer"

    def __dir__(self):
        return [*super().__dir__(), "loss", "absent"]

    def __getattr__(self, name):
        if name == "loss":
            return 0.25
        raise AttributeError(name)

    @property
    def mean(self):
        time.sleep(3600)

    @property
    def size(self):
        raise ValueError("no size")

    @functools.cached_property
    def thread(self):
        return threading.current_thread().name

    def train(self):
        trainer = self
        number = 1
        return number

Trainer().train()
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


async def variables(client: DapClient, frame: int, *path: str) -> dict[str, str]:
    """Return the variables of a frame, or of the object to which a path of names leads."""
    found = (await client.request("scopes", {"frameId": frame}, within=DEADLINE))["scopes"]
    for name in (found[0]["name"], *path):
        reference = next(each["variablesReference"] for each in found if each["name"] == name)
        found = (await client.request("variables", {"variablesReference": reference}, within=DEADLINE))["variables"]
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


async def test_slow_property_delays_nothing(tmp_path: Path):
    """An expanded object shows a property that sleeps for an hour as slow, and an error in one line.

    Attributes that are stored are read in the stopped thread. A bound method is shown without the `repr` of its object.
    """
    async with stopped(tmp_path, TRAINER, "number = 1") as session:
        found = await variables(session.client, session.frame, "trainer")
        assert found.items() >= {"step": "7", "state": "'ready'", "rate": "0.5", "loss": "0.25"}.items()
        assert "absent" not in found
        assert found["mean"].startswith("<Slow: mean takes longer than ")
        assert ("<ValueError: no size>", "'relay-agent values'") == (found["size"], found["thread"])
        methods = await variables(session.client, session.frame, "trainer", "function variables")
        assert "<bound method Trainer.train>" == methods["train"]


async def test_attributes_of_a_tensor(tmp_path: Path):
    """An expanded tensor shows why it has no imaginary part in one line, and its methods without its elements."""
    pytest.importorskip("torch")
    source = "import torch\n\ntensor = torch.zeros(2, 3)\nnumber = 1\n"
    async with stopped(tmp_path, source, "number = 1") as session:
        found = await variables(session.client, session.frame, "tensor")
        assert "<RuntimeError: imag is not implemented for tensors with non-complex dtypes.>" == found["imag"]
        assert "torch.Size([2, 3])" == found["shape"]
        functions = await variables(session.client, session.frame, "tensor", "function variables")
        assert [] == [text for text in (*found.values(), *functions.values()) if "tensor([" in text]


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

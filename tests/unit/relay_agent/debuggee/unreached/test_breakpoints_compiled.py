"""Facts about breakpoints in functions that torch.compile has compiled, in a real job with a real debugger."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay_agent.debuggee.unreached import breakpoints
from relay_agent.debuggee.unreached.breakpoints import CompiledWatch, Place, describe_compiled
from relay_client.dap import DapClient
from tests.support.deadline import DEADLINE
from tests.support.jobs import job
from tests.support.torch_job import needs_torch

MODEL = """\
import time
import torch

class Block(torch.nn.Module):
    def forward(self, x):
        return self.doubled(x)  # compiled
    def doubled(self, x):
        return x * 2  # compiled
    def generate(self, x):
        return x + 1  # reached

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        return scaled(self.block(x))  # compiled

def scaled(x):
    return 3 * x  # compiled

@torch.compile(backend="eager")
def loss(x):
    y = x.sum()
    print("", end="")
    return y / 2  # compiled

@torch.compile(backend="eager")
def skipped(x):
    return x[0]  # reached

net = torch.compile(Net(), backend="eager")

def step():
    x = torch.ones(2)
    net.block.generate(loss(net(x)))
    return skipped([x])  # reached
"""
JOB = """
    import threading, warnings
    warnings.simplefilter("default")
    sys.path.insert(0, sys.argv[1])
    import model
    model.step()
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    sys.stdin.readline()
    model.torch.compiler.set_stance("force_eager")
    model.step()
    sys.stdin.readline()
"""


def lines(mark: str) -> list[int]:
    """Return the lines of the model that have a mark."""
    return [number for number, line in enumerate(MODEL.splitlines(), 1) if line.endswith(f"# {mark}")]


@needs_torch
async def test_breakpoints_in_compiled_functions_are_not_verified(tmp_path: Path) -> None:
    """Each of these functions is named, also those that are compiled as parts; with the way out, all are reached."""
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    compiled = {str(path): [{"line": line} for line in lines("compiled") + lines("reached")]}
    async with job(JOB, str(tmp_path)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach(compiled, within=DEADLINE)
            output = await client.wait_for_event("output", matching=is_about_torch, within=DEADLINE)
            unverified = [await next_change(client) for _ in lines("compiled")]
            running.process.stdin.write(b"\n")  # type: ignore[union-attr]
            reached = [await next_stop(client) for _ in range(8)]
            verified = [await next_change(client) for _ in lines("compiled")]
    names = ["Block.doubled", "Block.forward", "Net.forward", "loss", "scaled"]
    if sys.version_info < (3, 11):  # its code objects have no qualified names
        names = ["Block.doubled", "Block.forward", "forward", "loss", "scaled"]
    text = (
        f"relay-agent: breakpoints are not hit in functions that torch.compile has compiled: {', '.join(names)}. hint: "
    )
    assert output["body"]["output"].startswith(text)
    assert lines("compiled") == sorted(each["line"] for each in unverified)
    assert [(False, f"torch.compile has compiled {name}") for name in names] == sorted(
        (each["verified"], each["message"]) for each in unverified
    )
    assert [(True, "")] * len(names) == [(each["verified"], each["message"]) for each in verified]
    assert ["forward", "forward", "doubled", "scaled", "loss", "generate", "step", "skipped"] == reached


async def next_change(client: DapClient) -> dict[str, Any]:
    """Return the next breakpoint that the debugger changes."""
    event = await client.wait_for_event("breakpoint", within=DEADLINE)
    assert event["body"]["reason"] == "changed"
    breakpoint_: dict[str, Any] = event["body"]["breakpoint"]
    return breakpoint_


async def next_stop(client: DapClient) -> str:
    """Continue at the next stop, and return the function in which it was."""
    stopped = await client.wait_for_event("stopped", within=DEADLINE)
    thread = {"threadId": stopped["body"]["threadId"]}
    frames = (await client.request("stackTrace", thread, within=DEADLINE))["stackFrames"]
    await client.request("continue", thread, within=DEADLINE)
    return str(frames[0]["name"]).rpartition(".")[2]


def is_about_torch(body: dict[str, str]) -> bool:
    return "torch.compile" in body["output"]


def test_line_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names what makes the breakpoints hit: without a restart, if this torch has that."""
    begin = "breakpoints are not hit in step, which torch.compile has compiled. hint: "
    restart = "start the job with TORCHDYNAMO_DISABLE=1"
    monkeypatch.delitem(sys.modules, "torch.compiler", raising=False)
    assert f"{begin}{restart}" == describe_compiled(["step"])
    monkeypatch.setitem(sys.modules, "torch.compiler", SimpleNamespace(set_stance=None))  # type: ignore[arg-type]
    assert describe_compiled(["step"]).startswith(
        f"{begin}run relay-client eval \"torch.compiler.set_stance('force_eager')\""
    )


def test_nothing_is_compiled_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found in a job that has not imported torch, or whose torch has other private names."""
    places = {1: Place(__file__, 1)}
    for name in ("torch._dynamo.convert_frame", "torch._dynamo.eval_frame"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert {} == CompiledWatch().names(places)
    monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", object())  # type: ignore[arg-type]
    assert {} == CompiledWatch().names(places)


def test_search_of_a_job_that_keeps_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects of the job are searched again only after a hundred times the time of the last search."""
    versions, searches, now = [1], list[float](), [1000.0]

    def search() -> list[object]:
        searches.append(now[0])
        now[0] += 0.5
        return []

    code = test_search_of_a_job_that_keeps_compiling.__code__
    fakes: dict[str, Any] = {
        "torch._dynamo.convert_frame": SimpleNamespace(input_codes=SimpleNamespace(seen=[lambda: code])),
        "torch._C._dynamo.eval_frame": SimpleNamespace(_debug_get_cache_entry_list=lambda _code: [None] * versions[0]),
        "torch._dynamo.guards": SimpleNamespace(GuardManagerWrapper=object),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.setattr(breakpoints, "gc", SimpleNamespace(get_objects=search))
    monkeypatch.setattr(breakpoints.time, "monotonic", lambda: now[0])
    watch = CompiledWatch()
    for _ in range(100):
        watch.names({})
        versions[0] += 1
        now[0] += 1
    assert [1000.0, 1050.5] == searches

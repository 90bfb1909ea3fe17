"""Facts about breakpoints in functions that torch.compile has compiled, in a real job with a real debugger."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay_agent.debuggee.unreached.breakpoints import describe_compiled
from relay_client.dap import DapClient
from tests.support.jobs.processes import job
from tests.support.jobs.torch_job import needs_torch
from tests.support.machine.deadline import DEADLINE

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
"""

BEGIN = "breakpoints are not hit in functions that torch.compile has compiled, and in what these call. hint: "


def lines(mark: str) -> list[int]:
    """Return the lines of the model that have a mark."""
    return [number for number, line in enumerate(MODEL.splitlines(), 1) if line.endswith(f"# {mark}")]


@needs_torch
async def test_breakpoints_in_compiled_functions_are_reported(tmp_path: Path) -> None:
    """One line is about all compiled functions; with the way out in it, all breakpoints are reached."""
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    compiled = {str(path): [{"line": line} for line in lines("compiled") + lines("reached")]}
    async with job(JOB, str(tmp_path)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach(compiled, within=DEADLINE)
            output = await client.wait_for_event("output", matching=is_about_torch, within=DEADLINE)
            running.process.stdin.write(b"\n")  # type: ignore[union-attr]
            reached = [await next_stop(client) for _ in range(8)]
    assert output["body"]["output"].startswith(f"relay-agent: {BEGIN}")
    assert ["forward", "forward", "doubled", "scaled", "loss", "generate", "step", "skipped"] == reached


async def next_stop(client: DapClient) -> str:
    """Continue at the next stop, and return the function in which it was."""
    stopped = await client.wait_for_event("stopped", within=DEADLINE)
    thread = {"threadId": stopped["body"]["threadId"]}
    frames = (await client.request("stackTrace", thread, within=DEADLINE))["stackFrames"]
    await client.request("continue", thread, within=DEADLINE)
    return str(frames[0]["name"]).rpartition(".")[2]


def is_about_torch(body: dict[str, str]) -> bool:
    return "torch.compile" in body["output"]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The private names of a torch that has compiled a function, as modules that a test may change."""
    modules: dict[str, Any] = {
        "torch.compiler": SimpleNamespace(),
        "torch._dynamo.convert_frame": SimpleNamespace(output_codes=SimpleNamespace(seen=[object()])),
        "torch._dynamo.eval_frame": SimpleNamespace(_stance=SimpleNamespace(stance="default")),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def test_line_names_the_way_out(compiler: dict[str, Any]) -> None:
    """The line names what makes the breakpoints hit: without a restart, if this torch has that."""
    restart = "start the job with TORCHDYNAMO_DISABLE=1"
    assert f"{BEGIN}{restart}" == describe_compiled()
    compiler["torch.compiler"].set_stance = None
    assert describe_compiled().startswith(f"{BEGIN}run relay-client eval \"torch.compiler.set_stance('force_eager')\"")


def test_uncompiled_functions_are_executed(compiler: dict[str, Any]) -> None:
    """Nothing is reported before anything has been compiled, or if the job executes the functions themselves."""
    compiler["torch._dynamo.eval_frame"]._stance.stance = "force_eager"
    assert "" == describe_compiled()
    compiler["torch._dynamo.eval_frame"]._stance.stance = "default"
    compiler["torch._dynamo.convert_frame"].output_codes.seen.clear()
    assert "" == describe_compiled()


def test_nothing_is_compiled_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is reported in a job that has not imported torch, or whose torch has other private names."""
    for name in ("torch._dynamo.convert_frame", "torch._dynamo.eval_frame"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert "" == describe_compiled()
    monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", object())  # type: ignore[arg-type]
    assert "" == describe_compiled()

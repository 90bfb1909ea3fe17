"""Facts about breakpoints in functions that torch.compile has compiled for a GPU."""

from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.gpu import needs_gpu

pytestmark = [pytest.mark.job, needs_gpu]

MODEL = """\
import torch

@torch.compile
def loss(x):
    y = x @ x
    return torch.relu(y).sum()  # line 6

loss(torch.ones(64, 64, device="cuda"))
"""
JOB = """
    import threading, warnings
    warnings.simplefilter("default")
    sys.path.insert(0, sys.argv[1])
    import model
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    sys.stdin.readline()
    model.torch.compiler.set_stance("force_eager")
    model.loss(model.torch.ones(64, 64, device="cuda"))
"""


async def test_breakpoint_in_a_compiled_function(tmp_path: Path) -> None:
    """Functions with compiled kernels are reported, and a breakpoint is hit once the job executes the function."""
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    async with job(JOB, str(tmp_path)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({str(path): [{"line": 6}]}, within=DEADLINE)
            await client.wait_for_event("output", matching=is_about_torch, within=DEADLINE)
            running.process.stdin.write(b"\n")  # type: ignore[union-attr]
            stopped = await client.wait_for_event("stopped", within=DEADLINE)
    assert "breakpoint" == stopped["body"]["reason"]


def is_about_torch(body: dict[str, str]) -> bool:
    return "in functions that torch.compile has compiled" in body["output"]

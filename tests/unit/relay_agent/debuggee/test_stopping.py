"""Facts about a stop in a function that torch.compile has compiled; `test_debugger` has those about other functions."""

from pathlib import Path

from relay_client.dap import DapClient
from tests.support.jobs.processes import job, run_job
from tests.support.jobs.torch_job import needs_torch
from tests.support.machine.deadline import DEADLINE

STEP = """\
import sys
import torch
from relay_agent.debuggee.debugger import debugger

def stop():
    debugger.break_at(sys._getframe(1))

@torch.compile(backend="eager")
def step(x):
    y = x + 1
    stop()  # here
    return y.sum()
"""
JOB = """
    import threading
    sys.path.insert(0, sys.argv[1])
    from relay_agent.debuggee import stopping
    stopping.keep_uncompiled(lambda: None)
    import step
    stopping.keep_uncompiled(step.stop)
    print(step.debugger.arm(), flush=True)
    step.debugger.wait_for_attach(3600, threading.Event())
    step.step(step.torch.ones(2))
"""
OFF = """
    import torch
    import relay_agent

    def step(x):
        relay_agent.breakpoint(rank=0)
        return x + 1

    print(torch.compile(step, backend="eager", fullgraph=True)(torch.ones(1)).item())
"""


@needs_torch
async def test_stop_in_a_compiled_function(tmp_path: Path) -> None:
    """The debugger stops where the function makes the call, and shows no frames of torch or of this library."""
    path = tmp_path / "step.py"
    path.write_text(STEP)
    async with job(JOB, str(tmp_path)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            stopped = await client.wait_for_event("stopped", within=DEADLINE)
            thread = {"threadId": stopped["body"]["threadId"]}
            frames = (await client.request("stackTrace", thread, within=DEADLINE))["stackFrames"]
            await client.request("continue", thread, within=DEADLINE)
            status, _, _ = await running.finish()
    here = STEP.splitlines().index("    stop()  # here") + 1
    assert [("step", here), ("<module>", 11)] == [(frame["name"], frame["line"]) for frame in frames]
    assert 0 == status


@needs_torch
async def test_breakpoint_without_debugging_is_no_obstacle_to_compilation() -> None:
    """A function that calls `breakpoint()` is compiled in one piece in a run that is not debugged."""
    assert (0, ["2.0"], "") == await run_job(OFF)

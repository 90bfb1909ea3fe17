"""The demo's debug session: what a developer does after pressing F5, step by step, with a check of each step.

Each step is a function that does one thing, raises DemoFailed if the debugger or the job does not behave as expected,
and returns the sentence that the demo prints. The walkthrough needs only a local port and the job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay_client.dap import DapClient
from relay_client.demo.environment import Child, DemoFailed, Sample, expect

BREAKPOINT_CONDITION = "epoch == 3"
ATTACH_TIMEOUT = 30.0
"""Seconds to wait for each response from the job's debugger; its agent may still be connecting to the relay."""
STOP_TIMEOUT = 30.0
"""Seconds to wait until a breakpoint is hit; tracing makes the job several times slower."""
HOLD = 0.5
"""Seconds for which the stopped job is observed; a running job computes ten epochs in that time."""

CUTS = 5
"""Number of times that the tunnel is cut while the job is stopped at its breakpoint."""

_CALL = "activations, probability = forward(model, x, y)"
_AFTER_CALL = "loss -= math.log("
_CALLEE = "activations = [math.tanh("
_LAST_LINE_OF_STEP = "return loss / len(batch)"


@dataclass
class Context:
    """State shared by the steps."""

    client: DapClient
    sample: Sample
    job: Child
    cut: Callable[[], int] | None = None
    """Closes every connection between client and relay, and returns their number."""
    report: Callable[[str], None] = lambda _sentence: None
    """Receives a sentence during a step."""
    thread: int = 0
    """Id of the stopped thread."""
    frame: int = 0
    """Id of its innermost frame."""

    async def set_breakpoint(self, code: str, **options: str) -> int:
        """Set the only breakpoint of the script, at the line with `code`, and return the line number."""
        line = self.sample.line_of(code)
        results = await self.client.set_breakpoints(str(self.sample.script), [{"line": line, **options}])
        expect(f"whether the breakpoint on line {line} is accepted", [True], [one.get("verified") for one in results])
        return line

    async def wait_for_stop(self, reason: str, code: str, function: str) -> str:
        """Wait until the job stops, check why and where it stopped, and return the place as text."""
        event = await self.client.wait_for_event("stopped", "terminated", within=STOP_TIMEOUT)
        line = self.sample.line_of(code)
        if event["event"] == "terminated":
            raise DemoFailed(f"the job ended without stopping at train.py:{line}")
        expect("the reason for the stop", reason, event["body"]["reason"])
        self.thread = event["body"]["threadId"]
        stack = await self.client.request("stackTrace", {"threadId": self.thread, "levels": 1})
        top = stack["stackFrames"][0]
        self.frame = top["id"]
        found = (top["name"], top["source"]["path"], top["line"])
        expect("the place of the stop", (function, str(self.sample.script), line), found)
        return f"{function}, train.py:{line}"

    async def evaluate(self, expression: str) -> str:
        """Return the text of an expression's value in the innermost frame."""
        arguments = {"expression": expression, "frameId": self.frame, "context": "watch"}
        return str((await self.client.request("evaluate", arguments))["result"])


async def attach(context: Context) -> str:
    """Attach as an editor does, with a conditional breakpoint and the path mapping of launch.json."""
    line = context.sample.line_of(_CALL)
    script = str(context.sample.script)
    mapping = {"localRoot": str(context.sample.directory), "remoteRoot": "."}
    breakpoints = {script: [{"line": line, "condition": BREAKPOINT_CONDITION}]}
    results = await context.client.attach(breakpoints, within=ATTACH_TIMEOUT, pathMappings=[mapping], justMyCode=False)
    expect(f"whether the breakpoint on line {line} is accepted", True, results[script][0].get("verified"))
    return f"attached, with a breakpoint at train.py:{line} if {BREAKPOINT_CONDITION}"


async def hit_breakpoint(context: Context) -> str:
    """Wait for the stop at the breakpoint, and check that its condition is true."""
    place = await context.wait_for_stop("breakpoint", _CALL, "train_step")
    expect(f"the condition {BREAKPOINT_CONDITION}", "True", await context.evaluate(BREAKPOINT_CONDITION))
    return f"stopped in {place}, in the source on this machine"


async def read_variables(context: Context) -> str:
    """Read the local variables of the frame."""
    scopes = await context.client.request("scopes", {"frameId": context.frame})
    reference = scopes["scopes"][0]["variablesReference"]
    body = await context.client.request("variables", {"variablesReference": reference})
    values = {variable["name"]: variable["value"] for variable in body["variables"]}
    missing = {"model", "batch", "epoch", "x", "y", "label"} - values.keys()
    expect("the set of missing variables", set(), missing)
    return (
        f"variables: epoch = {values['epoch']}, x = {values['x'][:7]}, y = {values['y'][:7]}, label = {values['label']}"
    )


async def verify_stop(context: Context) -> str:
    """Observe the job for a moment, and check that it neither prints nor computes anything."""

    async def progress() -> tuple[list[str], str]:
        return context.job.lines(), await context.evaluate("(epoch, x, y)")

    before = await progress()
    await asyncio.sleep(HOLD)
    expect("what the stopped job has printed and computed", before, await progress())
    printed = before[0]
    return f"the job is stopped: {HOLD:g} s later, its last line of output is still '{printed[-1]}'"


async def survive_cuts(context: Context) -> str:
    """Cut the tunnel several times; check that the job stays stopped and the debugger still responds."""
    expression, cut = "(epoch, x, y)", context.cut or (lambda: 0)
    before, slowest = await context.evaluate(expression), 0.0
    for number in range(1, CUTS + 1):
        expect("whether there is a connection to cut", True, cut() > 0)
        started = time.monotonic()
        expect("what the job has computed after a cut", before, await context.evaluate(expression))
        slowest = max(slowest, took := time.monotonic() - started)
        context.report(
            f"cut {number} of {CUTS}: the tunnel was restored, and the debugger responded after {took:.2f} s"
        )
    cut()
    return (
        f"cut the tunnel {CUTS} times: the job is still stopped at the breakpoint, and the debugger responded within "
        f"{slowest:.2f} s; then cut the tunnel once more"
    )


async def step_into(context: Context) -> str:
    """Step into the function that the current line calls."""
    await context.client.request("stepIn", {"threadId": context.thread})
    return f"stepped into {await context.wait_for_stop('step', _CALLEE, 'forward')}"


async def step_out(context: Context) -> str:
    """Step out of the called function, and over the rest of the calling line."""
    await context.client.request("stepOut", {"threadId": context.thread})
    await context.wait_for_stop("step", _CALL, "train_step")
    await context.client.request("next", {"threadId": context.thread})
    return f"stepped out and over, to {await context.wait_for_stop('step', _AFTER_CALL, 'train_step')}"


async def evaluate_expression(context: Context) -> str:
    """Evaluate an expression whose value the job does not print."""
    expression = "sum(label for _, _, label in batch), len(batch)"
    inside, size = (await context.evaluate(expression)).strip("()").split(", ")
    expect("the size of the batch", "20", size)
    if not 0 <= int(inside) <= int(size):
        expect("the number of labels inside the circle", f"0 to {size}", inside)
    return f"evaluated in the job: {inside} of the {size} points of this batch are inside the circle"


async def use_logpoint(context: Context) -> str:
    """Replace the breakpoint with a logpoint, continue, and receive its output while the job runs."""
    message = "logpoint in epoch {epoch}: loss {loss / len(batch)}"
    line = await context.set_breakpoint(_LAST_LINE_OF_STEP, condition="epoch == 5", logMessage=message)
    await context.client.request("continue", {"threadId": context.thread})
    event = await context.client.wait_for_event(
        "output", matching=lambda body: "logpoint in epoch 5: loss 0." in body.get("output", ""), within=STOP_TIMEOUT
    )
    return f"continued with a logpoint at train.py:{line}, which prints '{event['body']['output'].strip()[:36]}...'"


async def detach(context: Context) -> str:
    """Detach from the job without terminating it."""
    await context.client.request("disconnect", {"terminateDebuggee": False})
    await context.client.close()
    return f"detached after '{context.job.lines()[-1]}'"


async def wait_for_exit(context: Context) -> str:
    """Wait until the job has ended, and check that it succeeded."""
    status = await context.job.wait(within=STOP_TIMEOUT)
    expect("the exit status of the job", 0, status)
    last = context.job.lines()[-1]
    expect("the first word of the job's last line", "done:", last.split()[0])
    return f"the job continued on its own and ended with status {status}: '{last}'"


STEPS: tuple[Callable[[Context], Awaitable[str]], ...] = (
    attach,
    hit_breakpoint,
    read_variables,
    verify_stop,
    survive_cuts,
    step_into,
    step_out,
    evaluate_expression,
    use_logpoint,
    detach,
    wait_for_exit,
)


async def run_walkthrough(
    port: int, sample: Sample, job: Child, report: Callable[[str], None], *, cut: Callable[[], int] | None = None
) -> None:
    """Debug the job behind 127.0.0.1:`port`, and report each step.

    Args:
        port: The local port that an editor would attach to.
        sample: The source on this machine.
        job: The job that runs a copy of the source.
        report: Receives one sentence per step.
        cut: Closes every connection between client and relay; if given, the tunnel is cut at the breakpoint.

    Raises:
        DemoFailed: the debugger or the job did not behave as expected.
        RelayDebugError: a step failed for another reason.
    """
    async with await DapClient.connect("127.0.0.1", port) as client:
        context = Context(client, sample, job, cut, report=report)
        for step in STEPS:
            if step is not survive_cuts or cut is not None:
                report(await step(context))

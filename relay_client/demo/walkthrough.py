"""The debug session that the demo shows: what a developer does after F5, step by step and checked.

Each step is a function that does one thing, raises DemoFailed if the debugger or the job behaves otherwise, and
returns the sentence that the demo prints. The story knows a port and a job, and nothing of what lies between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from relay_client.dap.client import DapClient
from relay_client.demo.checks import DemoFailed, expect
from relay_client.demo.sample import Sample

__all__ = ["BREAKPOINT_CONDITION", "Job", "tell"]

BREAKPOINT_CONDITION = "epoch == 3"
LOCAL_HOST = "127.0.0.1"
ATTACH_TIMEOUT = 30.0
"""Seconds until the job's debugger answers; its agent may still be on its way to the relay."""
STOP_TIMEOUT = 30.0
"""Seconds until a breakpoint is hit; a traced job is several times slower than a free one."""
HOLD = 0.5
"""Seconds over which the stopped job is watched: as long as it needs for ten epochs when it runs."""

CUTS = 5
"""How often the tunnel is cut while the job stands at its breakpoint."""

_CALL = "activations, probability = forward(model, x, y)"
_AFTER_CALL = "loss -= math.log("
_CALLEE = "activations = [math.tanh("
_LAST_LINE_OF_STEP = "return loss / len(batch)"


class Job(Protocol):
    """What the story must know of the job: its output and its end."""

    def lines(self) -> list[str]:
        """Return what it has printed so far."""

    async def wait(self, *, within: float | None = None) -> int:
        """Return its exit status once it has ended."""


@dataclass
class Session:
    """What the steps hand on to each other."""

    client: DapClient
    sample: Sample
    job: Job
    condition: str
    cut: Callable[[], int] | None = None
    """Ends every connection between client and relay, and returns how many there were."""
    thread: int = 0
    frame: int = 0

    async def set_breakpoint(self, code: str, **how: str) -> int:
        """Make this the only breakpoint of the script, and return its line."""
        line = self.sample.line_of(code)
        taken = await self.client.set_breakpoints(str(self.sample.script), [{"line": line, **how}])
        expect(f"whether the breakpoint in line {line} is accepted", [True], [one.get("verified") for one in taken])
        return line

    async def arrive(self, reason: str, code: str, function: str) -> str:
        """Wait until the job stops for this reason at this code, and return the place."""
        event = await self.client.wait_for_event("stopped", "terminated", within=STOP_TIMEOUT)
        line = self.sample.line_of(code)
        if event["event"] == "terminated":
            raise DemoFailed(f"the job ended and did not stop at train.py:{line}")
        expect("the reason for the stop", reason, event["body"]["reason"])
        self.thread = event["body"]["threadId"]
        stack = await self.client.request("stackTrace", {"threadId": self.thread, "levels": 1})
        top = stack["stackFrames"][0]
        self.frame = top["id"]
        found = (top["name"], top["source"]["path"], top["line"])
        expect("the place of the stop", (function, str(self.sample.script), line), found)
        return f"{function}, train.py:{line}"

    async def evaluate(self, expression: str) -> str:
        """Return the text of an expression's value in the frame where the job stands."""
        arguments = {"expression": expression, "frameId": self.frame, "context": "watch"}
        return str((await self.client.request("evaluate", arguments))["result"])


async def attach(session: Session) -> str:
    """Attach as an editor does, with a conditional breakpoint and the path mapping of launch.json."""
    line = session.sample.line_of(_CALL)
    script = str(session.sample.script)
    mapping = {"localRoot": str(session.sample.directory), "remoteRoot": "."}
    wanted = {script: [{"line": line, "condition": session.condition}]}
    taken = await session.client.attach(wanted, within=ATTACH_TIMEOUT, pathMappings=[mapping], justMyCode=False)
    expect(f"whether the breakpoint in line {line} is accepted", True, taken[script][0].get("verified"))
    return f"attached, with a breakpoint at train.py:{line} if {session.condition}"


async def hit_breakpoint(session: Session) -> str:
    """Stop at the breakpoint, when its condition holds."""
    place = await session.arrive("breakpoint", _CALL, "train_step")
    expect(f"the condition {session.condition}", "True", await session.evaluate(session.condition))
    return f"stopped in {place}, in the source on this machine"


async def look_at_variables(session: Session) -> str:
    """Read the local variables of the frame."""
    scopes = await session.client.request("scopes", {"frameId": session.frame})
    reference = scopes["scopes"][0]["variablesReference"]
    body = await session.client.request("variables", {"variablesReference": reference})
    values = {variable["name"]: variable["value"] for variable in body["variables"]}
    missing = {"model", "batch", "epoch", "x", "y", "label"} - values.keys()
    expect("the variables that are missing", set(), missing)
    return (
        f"variables: epoch = {values['epoch']}, x = {values['x'][:7]}, y = {values['y'][:7]}, label = {values['label']}"
    )


async def see_it_stand_still(session: Session) -> str:
    """Watch the job for a moment: it must not get on."""

    async def look() -> tuple[list[str], str]:
        return session.job.lines(), await session.evaluate("(epoch, x, y)")

    before = await look()
    await asyncio.sleep(HOLD)
    expect("what the stopped job has printed and computed", before, await look())
    printed = before[0]
    return f"the job stands still: {HOLD:g} s later its last line of output is still '{printed[-1]}'"


async def survive_cuts(session: Session) -> str:
    """Cut the tunnel again and again: the job must stand where it stood, and answer."""
    where, cut = "(epoch, x, y)", session.cut or (lambda: 0)
    before, slowest = await session.evaluate(where), 0.0
    for _ in range(CUTS):
        expect("whether there is a connection to cut", True, cut() > 0)
        started = time.monotonic()
        expect("what the job has computed after a cut", before, await session.evaluate(where))
        slowest = max(slowest, time.monotonic() - started)
    cut()
    return (
        f"cut the tunnel {CUTS} times: the job still stands there, and answered again after {slowest:.2f} s at most; "
        "cut it once more"
    )


async def step_into(session: Session) -> str:
    """Step into the function that is called where the job stands."""
    await session.client.request("stepIn", {"threadId": session.thread})
    return f"stepped into {await session.arrive('step', _CALLEE, 'forward')}"


async def step_out(session: Session) -> str:
    """Step out of it, and over the rest of the calling line."""
    await session.client.request("stepOut", {"threadId": session.thread})
    await session.arrive("step", _CALL, "train_step")
    await session.client.request("next", {"threadId": session.thread})
    return f"stepped out and over, to {await session.arrive('step', _AFTER_CALL, 'train_step')}"


async def evaluate_expression(session: Session) -> str:
    """Let the job compute something that it does not print."""
    expression = "sum(label for _, _, label in batch), len(batch)"
    inside, size = (await session.evaluate(expression)).strip("()").split(", ")
    expect("the size of the batch", "20", size)
    expect("whether the batch has as many labels inside the circle as fit", True, 0 <= int(inside) <= int(size))
    return f"evaluated on the node: {inside} of the {size} points of this batch lie inside the circle"


async def use_logpoint(session: Session) -> str:
    """Replace the breakpoint by a logpoint, continue, and read what it logs while the job runs."""
    message = "logpoint in epoch {epoch}: loss {loss / len(batch)}"
    line = await session.set_breakpoint(_LAST_LINE_OF_STEP, condition="epoch == 5", logMessage=message)
    await session.client.request("continue", {"threadId": session.thread})
    event = await session.client.wait_for_event(
        "output", matching=lambda body: "logpoint in epoch 5: loss 0." in body.get("output", ""), within=STOP_TIMEOUT
    )
    return f"continued, with a logpoint at train.py:{line} that says '{event['body']['output'].strip()[:36]}...'"


async def detach(session: Session) -> str:
    """Leave the job to itself."""
    await session.client.request("disconnect", {"terminateDebuggee": False})
    await session.client.close()
    return f"detached after '{session.job.lines()[-1]}'"


async def see_it_finish(session: Session) -> str:
    """Wait for the job's own, successful end."""
    status = await session.job.wait(within=STOP_TIMEOUT)
    expect("the exit status of the job", 0, status)
    last = session.job.lines()[-1]
    expect("the first word of the job's last line", "done:", last.split()[0])
    return f"the job went on by itself and ended with status {status}: '{last}'"


STEPS: tuple[Callable[[Session], Awaitable[str]], ...] = (
    attach,
    hit_breakpoint,
    look_at_variables,
    see_it_stand_still,
    survive_cuts,
    step_into,
    step_out,
    evaluate_expression,
    use_logpoint,
    detach,
    see_it_finish,
)


async def tell(
    port: int,
    sample: Sample,
    job: Job,
    say: Callable[[str], None],
    condition: str = BREAKPOINT_CONDITION,
    *,
    cut: Callable[[], int] | None = None,
) -> None:
    """Debug the job behind 127.0.0.1:`port`, and say what each step did.

    Args:
        port: Where an editor would attach.
        sample: The source on this machine.
        job: The job that runs a copy of it.
        say: Takes one sentence per step.
        condition: Of the breakpoint in `train_step`.
        cut: Ends every connection between client and relay; if given, the story does so at the breakpoint.

    Raises:
        RelayDebugError: a step failed; DemoFailed if something answered, and not as it should.
    """
    async with await DapClient.connect(LOCAL_HOST, port) as client:
        session = Session(client, sample, job, condition, cut)
        for step in STEPS:
            if step is not survive_cuts or cut is not None:
                say(await step(session))

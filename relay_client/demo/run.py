"""The two demos: one debugs the job by itself, the other leaves that to the reader's editor."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from relay_client.demo.chaos import ChaosProxy
from relay_client.demo.checks import expect
from relay_client.demo.environment import Stage
from relay_client.demo.sample import Sample, find_sample
from relay_client.demo.walkthrough import BREAKPOINT_CONDITION, tell
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import TaskSet, run_together
from relay_core.program.console import print_error
from relay_core.program.run import run_until_stopped

__all__ = ["run_demo"]

PROGRAM = "relay-client"
EPOCHS, LONG_EPOCHS = 60, 5000
"""A few seconds of training for the story, some minutes for a person."""
WAIT, LONG_WAIT = 60.0, 3600.0
"""Seconds that the job waits for its debugger, likewise."""
CUT_INTERVAL = 10.0
"""Seconds between the cuts of `--hold --chaos`."""
USUAL_PORT = 5678
"""The port in the sample's launch.json."""


def run_demo(
    *, hold: bool = False, chaos: bool = False, verbose: bool = False, condition: str = BREAKPOINT_CONDITION
) -> int:
    """Run a demo and return the exit status: 0 if every step was seen to work, or on Ctrl-C.

    Args:
        hold: Set everything up and leave the debugging to an editor, until the job ends.
        chaos: Cut the tunnel at the breakpoint; with `hold`, every few seconds.
        verbose: Show at the end what the programs printed; a failed demo always does.
        condition: Of the breakpoint; with one that never holds, the demo must fail.
    """
    try:
        return run_until_stopped(_demo(hold=hold, chaos=chaos, verbose=verbose, condition=condition))
    except RelayDebugError as error:
        print_error(PROGRAM, error)
        return error.exit_code


async def _demo(*, hold: bool, chaos: bool, verbose: bool, condition: str) -> None:
    _stop_on_hangup()
    sample, say = find_sample(), _narrator()
    say("starting a relay, a training job with its agent, and relay-client, all on this machine")
    with tempfile.TemporaryDirectory(prefix="relay-demo-", ignore_cleanup_errors=True) as directory:
        epochs, wait, port = (LONG_EPOCHS, LONG_WAIT, USUAL_PORT) if hold else (EPOCHS, WAIT, 0)
        stage = Stage(sample, Path(directory), epochs=epochs, wait=wait, port=port, chaos=chaos)
        try:
            async with stage:
                say(f"the relay listens on {stage.relay_address}; the job (pid {stage.job.pid}) waits for a debugger")
                cut = stage.chaos.cut if stage.chaos is not None else None
                story = tell(stage.port, sample, stage.job, say, condition, cut=cut)
                await _act(stage, _hold(stage, sample, say) if hold else story)
        except RelayDebugError:
            _show_output(stage)
            raise
        if verbose:
            _show_output(stage)
    say("everything that was started has ended" + ("" if hold else ", and every step above was checked"))


async def _act(stage: Stage, act: Coroutine[None, None, None]) -> None:
    """Run the act for as long as the programs on stage do."""
    over = asyncio.Event()

    async def until_over() -> None:
        await act
        over.set()

    await run_together(until_over(), stage.watch(over))


async def _hold(stage: Stage, sample: Sample, say: Callable[[str], None]) -> None:
    """Tell the reader how to attach, and wait until the job has ended."""
    print(f"""
127.0.0.1:{stage.port} is the debugger port of the job now. Open its source in VS Code,

    {sample.directory}

set a breakpoint in train.py, and press F5. The folder's .vscode/launch.json needs this configuration:

{textwrap.indent(json.dumps(_launch_configuration(stage.port), indent=4), "    ")}

The job runs on when you disconnect. Ctrl-C ends the demo.
""", flush=True)  # fmt: skip
    async with TaskSet() as tasks:
        if stage.chaos is not None:
            tasks.spawn(_keep_cutting(stage.chaos, say), name="chaos")
        status = await stage.job.wait()
    expect("the exit status of the job", 0, status)
    print(f"the job has ended: {stage.job.lines()[-1]}", flush=True)


async def _keep_cutting(chaos: ChaosProxy, say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(CUT_INTERVAL)
        if chaos.cut():
            say("cut the tunnel; your editor should not notice")


def _launch_configuration(port: int) -> dict[str, object]:
    return {
        "name": f"Attach through the relay ({port})",
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": "."}],
        "justMyCode": False,
    }


def _narrator() -> Callable[[str], None]:
    """Return a function that prints a sentence behind the seconds since now."""
    started = time.monotonic()
    return lambda sentence: print(f"{time.monotonic() - started:5.1f} s  {sentence}", flush=True)


def _show_output(stage: Stage) -> None:
    for child in stage.children:
        print(f"--- {child.name} printed:", child.output().rstrip(), sep="\n", file=sys.stderr, flush=True)


def _stop_on_hangup() -> None:
    """End in order when the terminal is closed: the programs have sessions of their own and would stay."""
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, signal.raise_signal, signal.SIGTERM)

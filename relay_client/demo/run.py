"""The two modes of the demo: an automatic walkthrough, and `--hold`, in which the user attaches an editor."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from relay_client.demo.chaos import CutProxy
from relay_client.demo.environment import DemoEnvironment, Sample, expect, find_sample
from relay_client.demo.walkthrough import run_walkthrough
from relay_client.editor_setup.entries import DEFAULT_PORT
from relay_client.editor_setup.vscode import attach_configuration
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import TaskSet, first_completed

EPOCHS, LONG_EPOCHS = 60, 5000
"""Numbers of epochs: training takes a few seconds in the walkthrough, and a few minutes with `--hold`."""
WAIT, LONG_WAIT = 60.0, 3600.0
"""Seconds for which the job waits for a debugger, in the walkthrough and with `--hold`."""
CUT_INTERVAL = 10.0
"""Seconds between cuts with `--hold --chaos`."""


async def run_demo(*, hold: bool, chaos: bool, verbose: bool) -> None:
    """Run a demo.

    Args:
        hold: Whether to set everything up and wait until the job ends, so that the user can attach an editor.
        chaos: Whether to cut the tunnel at the breakpoint or, with `hold`, every few seconds.
        verbose: Whether to print the output of the programs at the end; a failed demo always prints it.

    Raises:
        DemoFailed: a step did not succeed.
    """
    sample, report = find_sample(), _make_reporter()
    report("starting a relay, a training job with its agent, and relay-client, all on this machine")
    try:
        await _run_in_directory(sample, report, hold=hold, chaos=chaos, verbose=verbose)
    except asyncio.CancelledError:
        report("all programs have been stopped")
        raise
    report("all programs have been stopped" + ("" if hold else "; every step above was checked"))


async def _run_in_directory(
    sample: Sample, report: Callable[[str], None], *, hold: bool, chaos: bool, verbose: bool
) -> None:
    with tempfile.TemporaryDirectory(prefix="relay-demo-", ignore_cleanup_errors=True) as directory:
        epochs, wait, port = (LONG_EPOCHS, LONG_WAIT, DEFAULT_PORT) if hold else (EPOCHS, WAIT, 0)
        running = DemoEnvironment(sample, Path(directory), epochs=epochs, wait=wait, port=port, chaos=chaos)
        running.report = report

        async def debug() -> None:
            if hold:
                await _hold(running, sample, report)
            else:
                cut = running.chaos.cut if running.chaos is not None else None
                await run_walkthrough(running.port, sample, running.job, report, cut=cut)

        try:
            async with running:
                await first_completed(debug(), running.watch())
        except RelayDebugError:
            _show_output(running)
            raise
        if verbose:
            _show_output(running)


async def _hold(running: DemoEnvironment, sample: Sample, report: Callable[[str], None]) -> None:
    """Print instructions for attaching an editor, and wait until the job has ended."""
    configuration = attach_configuration(f"Attach through the relay ({running.port})", running.port)
    print(f"""
127.0.0.1:{running.port} is now the job's debugger port. Open the job's source folder in VS Code:

    {sample.directory}

Then set a breakpoint in train.py and press F5. The .vscode/launch.json in that folder needs this configuration:

{textwrap.indent(json.dumps(configuration, indent=4), "    ")}

The job continues when you disconnect. Press Ctrl-C to stop the demo.
""", flush=True)  # fmt: skip
    async with TaskSet() as tasks:
        if running.chaos is not None:
            tasks.spawn(_keep_cutting(running.chaos, report), name="chaos")
        status = await running.job.wait()
    expect("the exit status of the job", 0, status)
    print(f"the job has ended; its last line of output: {running.job.lines()[-1]}", flush=True)


async def _keep_cutting(chaos: CutProxy, report: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(CUT_INTERVAL)
        if chaos.cut():
            report("the tunnel was cut; the debug session in your editor should continue")
            chaos.on_connection, started = (restored := asyncio.Event()).set, time.monotonic()
            await restored.wait()
            report(f"relay-client connected again, {time.monotonic() - started:.1f} s later")


def _make_reporter() -> Callable[[str], None]:
    """Return a function that prints a sentence, preceded by the number of seconds since this call."""
    started = time.monotonic()
    return lambda sentence: print(f"{time.monotonic() - started:5.1f} s  {sentence}", flush=True)


def _show_output(running: DemoEnvironment) -> None:
    for child in running.children:
        print(f"--- {child.name} printed:", child.output().rstrip(), sep="\n", file=sys.stderr, flush=True)

"""What the end of a node's agent costs: it is killed while an editor's debugger stands at a breakpoint.

The time from SIGKILL until the editor's connection has ended, with the reason in the client's log, and until a debugger
that attaches again at once stands at the breakpoint again. The relay, the client and the job continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path

import psutil

from relay_client.dap import DapClient
from relay_core.errors import ConnectionLost
from tests.bench.programs import lines_of
from tests.bench.report import Limit, Row, median_ms
from tests.bench.stage import HC, Stage
from tests.support.editors.stepper import LINE, TRAIN
from tests.support.machine.ports import free_port

__all__ = ["death"]

WITHIN = 60.0
PROMISED_MS = 2000.0
FIGURE = "the agent is killed at a breakpoint: since then"


async def death(stage: Stage, *, quick: bool) -> list[Row]:
    """Some deaths of agents at relays that honour and that ignore the headers that select a listener."""
    rows = []
    for what, options in (("", ()), (", headers ignored", ("--ignore-listener-selection",))):
        times = await _deaths(stage, 3 if quick else 8, options)
        ended, resumed = ([times_of[index] for times_of in times] for index in range(2))
        limits = {"worst": Limit(PROMISED_MS)}
        rows += [
            Row(FIGURE, f"session ended{what}", "ms", _values(ended), detail={"seconds": ended}, limits=limits),
            Row(FIGURE, f"attached and stopped again{what}", "ms", _values(resumed), detail={"seconds": resumed}),
        ]
    return rows


async def _deaths(stage: Stage, count: int, options: tuple[str, ...]) -> list[tuple[float, float]]:
    own = Stage(stage.programs, delays=stage.delays)
    own.relay = await own.start_relay(*options)
    port = free_port()
    script, node = stage.programs.directory / f"train-{port}.py", stage.programs.directory / f"node-{port}"
    script.write_text(TRAIN)
    secrets = ["--hc", HC, "--connection-string-file", own.relay.connection_file("agent"), "--ca-file"]
    job = await stage.programs.start(
        *("job", "env", f"RELAY_NODE_DIR={node}", sys.executable, "-m", "relay_agent", "run", *secrets),
        *(own.relay.ca_file, "--port", str(port), "--debug-ranks", "none", "--", sys.executable, str(script)),
    )
    await lines_of(job, lambda text: "listening on" in text)
    client = await own.start_client(str(port))
    times = [await _die(port, script, node) for _ in range(count)]
    for child in (client, job, own.relay.child):
        await stage.programs.end(child)
    return times


def _values(seconds: list[float]) -> dict[str, float | str]:
    return {"median": median_ms(seconds), "worst": 1000 * max(seconds)}


async def _die(port: int, script: Path, node: Path) -> tuple[float, float]:
    """Kill the agent under a stopped debugger; return both times in seconds."""
    async with await _stopped(port, script) as editor:
        for process in psutil.process_iter(["cmdline"]):
            if str(node) in (process.info["cmdline"] or []):
                process.kill()
        killed = time.monotonic()
        with contextlib.suppress(ConnectionLost):
            await editor.wait_for_event("terminated", within=WITHIN)
        ended = time.monotonic() - killed
    async with await _stopped(port, script) as editor:
        resumed = time.monotonic() - killed
        await editor.request("disconnect", {"terminateDebuggee": False}, within=WITHIN)
    await asyncio.sleep(1.0)
    return ended, resumed


async def _stopped(port: int, script: Path) -> DapClient:
    """Return a debugger that has attached and stands at the breakpoint."""
    editor = await DapClient.connect("127.0.0.1", port)
    await editor.attach({str(script): [{"line": LINE}]}, within=WITHIN)
    await editor.wait_for_event("stopped", within=WITHIN)
    return editor

"""Time from an editor's `initialize` until a job has stopped at a breakpoint (`python -m tests.bench.attaching`).

"direct" is a job that calls `debugpy.listen` itself, from as far away. The others are jobs under `relay-agent run`: the
first time an editor attaches, debugpy is started in the job. "no prefetch" is `relay-client --no-prefetch`: debugpy
answers every request, one round trip after the other.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from relay_client.demo.environment import Child
from tests.bench.programs import lines_of, python_json
from tests.bench.report import Limit, Row
from tests.bench.stage import HC, Stage
from tests.support.machine.ports import free_port

__all__ = ["JOB", "attach", "client_of", "direct_job", "job_with_agent"]

FIGURE = "attaching"
FIRST_TIME = Limit(350)
"""Milliseconds more than once debugpy runs."""
JOB = """\
import sys, time

if "listen" in sys.argv:
    import debugpy
    print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)

def work(number):
    square = number * number
    return square

while True:
    work(7)
    time.sleep(0.01)
"""
LINE = JOB.splitlines().index("    return square") + 1


async def attach(stage: Stage, *, quick: bool) -> list[Row]:
    """Attach to each job several times."""
    script = stage.programs.directory / "working.py"
    script.write_text(JOB)
    jobs, count = (1, 3) if quick else (4, 8)
    found = {"direct": await _times(await direct_job(stage, script), script, count)}
    first: list[float] = []
    for _ in range(jobs):
        port, job = await job_with_agent(stage, script)
        for name, options in (("tunnel", ()), ("no prefetch", ("--no-prefetch",))):
            client = await client_of(stage, port, *options)
            times = await _times(port, script, count)
            if name == "tunnel":
                first.append(times.pop(0))
            found.setdefault(name, []).extend(times)
            await stage.programs.end(client)
        await stage.programs.end(job)
    medians = {name: 1000 * statistics.median(times) for name, times in found.items()}
    added = {"tunnel": 1000 * statistics.median(first) - medians["tunnel"]}
    return [
        Row(FIGURE, "from initialize until stopped", "ms", medians, detail={"seconds": found}),
        Row(FIGURE, "more the first time", "ms", added, limits={"tunnel": FIRST_TIME}, detail={"seconds": first}),
    ]


async def _times(port: int, script: Path, count: int) -> list[float]:
    times: list[float] = await python_json("tests.bench.attaching", port, script, LINE, count)
    return times


async def direct_job(stage: Stage, script: Path) -> int:
    """Return the port of a job under debugpy alone."""
    child = await stage.programs.start("plain", sys.executable, str(script), "listen")
    printed = await lines_of(child, lambda text: any(map(str.isdigit, text.splitlines())))  # debugpy may warn before
    port = next(int(line) for line in printed.splitlines() if line.isdigit())
    return (await stage.ways_to(port, "direct"))["direct"].port


async def job_with_agent(stage: Stage, script: Path) -> tuple[int, Child]:
    """Return the port of a job that can be attached to at any time, and the job."""
    port = free_port()
    secrets = ["--connection-string-file", stage.relay.connection_file("agent"), "--ca-file", stage.relay.ca_file]
    options = ["--hc", HC, "--port", str(port), "--wait", "0", *secrets]
    child = await stage.programs.python("job", "relay_agent", "run", *options, "--", sys.executable, str(script))
    await lines_of(child, lambda text: "listening on" in text)
    return port, child


async def client_of(stage: Stage, port: int, *options: str) -> Child:
    client = await stage.begin_client("--ports", str(port), *options)
    await lines_of(client, lambda text: f"serves port {port}" in text and "connected, round trip" in text)
    return client

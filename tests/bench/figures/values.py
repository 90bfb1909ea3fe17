"""The variables of a frame with 28 tensors, with `--debug-values` off and on, and a checksum of a gigabyte.

The tensors are of torch, or arrays of numpy where torch is missing. The time is from the request `variables` to its
response, directly at debugpy's port; the size is that of the JSON of the response. A step before each request makes
sure that nothing is remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import tempfile
import time
from pathlib import Path

from relay_client.dap import DapClient
from tests.bench.report import Row, median_ms
from tests.bench.stage import Stage
from tests.support.jobs.processes import job, run_job

__all__ = ["values"]

FIGURE = "variables of a frame with 28 tensors"
MAKE = {"torch": "torch.rand(8, 3, 32, 32)", "numpy": "numpy.random.rand(8, 3, 32, 32)"}
PROGRAM = """\
import {library}

def work():
    {names} = [{make} for _ in range(28)]
    number = 0
    while True:
        number += 1

work()
"""
START = """
    import runpy, threading
    from relay_agent.debuggee.debugger import debugger
    debugger.shows_values = sys.argv[2] == "on"
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(60, threading.Event())
    runpy.run_path(sys.argv[1])
"""
CHECKSUM = """
    import json, time
    import numpy
    from relay_agent.values.contents import fingerprint
    from relay_core.agent_api.evaluation import Selection
    value = numpy.ones(250_000_000, "float32")
    started = time.monotonic()
    found = fingerprint(value, Selection(), started + 1000)
    print(time.monotonic() - started)
    print(len(json.dumps(found.encode())))
"""


async def values(_stage: Stage, *, quick: bool) -> list[Row]:
    """Both kinds in the same run, each in a process of its own."""
    library = "torch" if importlib.util.find_spec("torch") else "numpy"
    names = ", ".join(f"tensor_{number}" for number in range(28))
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "frame.py")
        program = PROGRAM.format(library=library, names=names, make=MAKE[library])
        line = program.splitlines().index("        number += 1") + 1
        await asyncio.to_thread(script.write_text, program)
        for setting in ("off", "on"):
            found[f"values {setting}"] = await _measure(script, line, setting, 5 if quick else 20)
    sizes = {name: size / 1000 for name, (size, _) in found.items()}
    times = {name: median_ms(seconds) for name, (_, seconds) in found.items()}
    _, (seconds, size), _ = await run_job(CHECKSUM)
    return [
        Row(FIGURE, "the response", "KB", sizes, detail={"library": library}),
        Row(FIGURE, "until it is there", "ms", times, detail={"seconds": {n: s for n, (_, s) in found.items()}}),
        Row("checksum of 1 GB", "in the job's memory", "s", {"numpy": float(seconds)}),
        Row("checksum of 1 GB", "what the process sends", "bytes", {"numpy": float(size)}),
    ]


async def _measure(script: Path, line: int, setting: str, count: int) -> tuple[int, list[float]]:
    """Return the bytes of a response, and the seconds of several."""
    size, seconds = 0, []
    async with (
        job(START, str(script), setting) as running,
        await DapClient.connect("127.0.0.1", int(await running.line())) as client,
    ):
        await client.attach({str(script): [{"line": line}]}, justMyCode=False, within=60)
        for _ in range(count):
            stopped = await client.wait_for_event("stopped", within=60)
            thread = {"threadId": stopped["body"]["threadId"]}
            stack = await client.request("stackTrace", {**thread, "levels": 1}, within=60)
            frame = {"frameId": stack["stackFrames"][0]["id"]}
            scope = (await client.request("scopes", frame, within=60))["scopes"][0]
            started = time.monotonic()
            body = await client.request("variables", {"variablesReference": scope["variablesReference"]}, within=60)
            seconds.append(time.monotonic() - started)
            size = len(json.dumps(body))
            await client.request("continue", thread, within=60)
        with contextlib.suppress(Exception):
            await client.request("disconnect", {"terminateDebuggee": False}, within=60)
    return size, seconds

"""Steps through tests.bench.debuggee on a local port: `python -m tests.bench.steps PORT COUNT` prints the times."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from relay_client.dap.client import DapClient
from tests.bench.debuggee import STEPS

SCRIPT = Path(__file__).with_name("debuggee.py")
WITHIN = 30.0


async def steps(port: int, count: int) -> dict[str, list[float]]:
    """Return the seconds of each step, alone and with what an editor asks afterwards."""
    line = next(n for n, text in enumerate(SCRIPT.read_text().splitlines(), 1) if text.strip() == STEPS[0])
    alone, whole = [], []
    async with await DapClient.connect("127.0.0.1", port) as client:
        await client.attach({str(SCRIPT): [{"line": line}]}, within=WITHIN, justMyCode=False)
        stopped = await client.wait_for_event("stopped", within=WITHIN)
        thread = stopped["body"]["threadId"]
        await client.set_breakpoints(str(SCRIPT), [], within=WITHIN)
        for _ in range(count):
            started = time.monotonic()
            await client.request("next", {"threadId": thread}, within=WITHIN)
            await client.wait_for_event("stopped", within=WITHIN)
            alone.append(time.monotonic() - started)
            stack = await client.request("stackTrace", {"threadId": thread, "levels": 20}, within=WITHIN)
            scopes = await client.request("scopes", {"frameId": stack["stackFrames"][0]["id"]}, within=WITHIN)
            reference = scopes["scopes"][0]["variablesReference"]
            await client.request("variables", {"variablesReference": reference}, within=WITHIN)
            whole.append(time.monotonic() - started)
        await client.request("disconnect", {"terminateDebuggee": False}, within=WITHIN)
    return {"steps": alone, "whole": whole}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(steps(int(sys.argv[1]), int(sys.argv[2])))), flush=True)

"""Steps through tests.bench.debuggee: `python -m tests.bench.steps PORT COUNT [prompt]` prints the times.

debugpy's adapter leaves Nagle's algorithm on, so a message of its that follows another waits until the editor's system
has acknowledged that one, which takes 40 ms. With "prompt" the acknowledgement comes at once, as it does from an agent.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from relay_client.dap.client import DapClient
from relay_client.dap.tcp import TcpStream
from relay_core.net.local_reader import LocalReader
from tests.bench.debuggee import STEPS

SCRIPT = Path(__file__).with_name("debuggee.py")
WITHIN = 30.0


class PromptStream(TcpStream):
    """A connection whose bytes are acknowledged at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._prompt = LocalReader(writer.transport)

    async def read(self) -> bytes:
        """Return the next bytes, or b"" at the end."""
        return await self._prompt.read()


async def steps(port: int, count: int, *, prompt: bool) -> dict[str, list[float]]:
    """Return the seconds of each step, alone and with what an editor asks afterwards."""
    line = next(n for n, text in enumerate(SCRIPT.read_text().splitlines(), 1) if text.strip() == STEPS[0])
    alone, whole = [], []
    stream = PromptStream if prompt else TcpStream
    async with DapClient(stream(*await asyncio.open_connection("127.0.0.1", port))) as client:
        await client.attach({str(SCRIPT): [{"line": line}]}, within=WITHIN, justMyCode=False)
        stopped = await client.wait_for_event("stopped", within=WITHIN)
        thread = stopped["body"]["threadId"]
        await client.set_breakpoints(str(SCRIPT), [], within=WITHIN)
        for _ in range(count):
            started = time.monotonic()
            await client.request("next", {"threadId": thread}, within=WITHIN)
            await client.wait_for_event("stopped", within=WITHIN)
            alone.append(time.monotonic() - started)
            await look(client, thread)
            whole.append(time.monotonic() - started)
        await client.request("disconnect", {"terminateDebuggee": False}, within=WITHIN)
    return {"steps": alone, "whole": whole}


async def look(client: DapClient, thread: int) -> None:
    """Ask what VS Code asks after each step, in its order: each request needs the answer to the one before."""
    await client.request("threads", within=WITHIN)
    top = await client.request("stackTrace", {"threadId": thread, "startFrame": 0, "levels": 1}, within=WITHIN)
    await client.request("stackTrace", {"threadId": thread, "startFrame": 1, "levels": 19}, within=WITHIN)
    scopes = await client.request("scopes", {"frameId": top["stackFrames"][0]["id"]}, within=WITHIN)
    reference = scopes["scopes"][0]["variablesReference"]
    await client.request("variables", {"variablesReference": reference}, within=WITHIN)


if __name__ == "__main__":
    port, count = map(int, sys.argv[1:3])
    print(json.dumps(asyncio.run(steps(port, count, prompt="prompt" in sys.argv[3:]))), flush=True)

"""An editor that steps all the time, and attaches again whenever its session has ended."""

import asyncio
import contextlib
from pathlib import Path

from relay_client.dap import DapClient, RequestFailed
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import first_completed
from tests.support.machine.deadline import DEADLINE

TRAIN = """\
import time

number = 0
while True:
    number += 1
    time.sleep(0.005)
"""
LINE = 5
"""Of `number += 1`, where it stops first."""
RETRY_DELAY = 0.1


class Stepper:
    """The editor of one rank.

    Args:
        port: The local port of the rank.
        script: The path of the script with `TRAIN`.
    """

    def __init__(self, port: int, script: Path) -> None:
        self.steps = 0
        """Steps taken, in all sessions."""
        self.sessions = 0
        """Sessions that have stopped at the breakpoint."""
        self.endings: list[str] = []
        """Why each session or attempt has ended, and what relay-client has shown the editor until then."""
        self._port = port
        self._breakpoints = {str(script): [{"line": LINE}]}
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Stepper port {self._port} steps={self.steps} sessions={self.sessions}>"

    async def run(self) -> None:
        """Step until cancelled; the last session is ended as an editor ends it."""
        while True:
            try:
                await self._session()
            except RelayDebugError as error:
                self.endings.append(error.sentence)
            await asyncio.sleep(RETRY_DELAY)

    async def until_steps(self, steps: int) -> None:
        """Wait for further steps."""
        wanted = self.steps + steps
        while self.steps < wanted:
            await self._changed.wait()

    async def _session(self) -> None:
        async with await DapClient.connect("127.0.0.1", self._port, within=DEADLINE) as dap:
            await dap.attach(self._breakpoints, within=DEADLINE)
            thread = await self._stopped(dap)
            self.sessions += thread is not None
            try:
                while thread is not None:
                    thread = await self._step(dap, thread)
            except asyncio.CancelledError:
                await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
                raise
            finally:
                self.endings += await _shown(dap)
            self.endings.append("terminated")

    async def _step(self, dap: DapClient, thread: int) -> int | None:
        """Step over a line; return as `_stopped` does. The session may end before the response, as editors know."""
        try:
            request = dap.request("next", {"threadId": thread}, within=DEADLINE)
            first = await first_completed(request, dap.wait_for_event("terminated", within=DEADLINE))
            return None if isinstance(first, dict) and "event" in first else await self._stopped(dap)
        except RequestFailed as refused:
            self.endings.append(refused.sentence)
            await dap.wait_for_event("terminated", within=DEADLINE)
            return None

    async def _stopped(self, dap: DapClient) -> int | None:
        """Return the thread that has stopped, or None when the session has ended."""
        event = await dap.wait_for_event("stopped", "terminated", within=DEADLINE)
        if event["event"] == "terminated":
            return None
        self.steps += 1
        self._changed.set()
        self._changed = asyncio.Event()
        return int(event["body"]["threadId"])


async def _shown(dap: DapClient) -> list[str]:
    """Return the texts that the editor has received and not shown yet."""
    texts = []
    with contextlib.suppress(RelayDebugError):  # there are no more
        while True:
            body = (await dap.wait_for_event("output", within=0))["body"]
            if body.get("category") != "telemetry":
                texts.append(body["output"].strip())
    return texts

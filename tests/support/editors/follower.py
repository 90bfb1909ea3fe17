"""An editor that follows a process's children: another session for each that debugpy announces."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from relay_client.dap import DapClient
from relay_core.net.tasks import cancel_and_wait
from tests.support.machine.deadline import DEADLINE

__all__ = ["Follower"]


class Follower:
    """Attaches to each child, with a breakpoint, and lets it run on whenever it stops.

    Args:
        script: Where the breakpoint is.
        line: Likewise.
        look: Called at each stop, with the child's debugger and the id of the thread.
    """

    def __init__(
        self, script: Path, line: int, look: Callable[[DapClient, int], Awaitable[None]] | None = None
    ) -> None:
        self.breakpoints = {str(script): [{"line": line}]}
        self.stops = 0
        self.ports: set[int] = set()
        """Where debugpy has sent it."""
        self._look = look
        self._sessions: list[asyncio.Task[None]] = []

    async def follow(self, parent: DapClient) -> None:
        """Stay with the parent and its children until all have ended."""
        wait = functools.partial(parent.wait_for_event, "debugpyAttach", "terminated", within=DEADLINE)
        while (event := await wait())["event"] != "terminated":
            self._sessions.append(asyncio.create_task(self._follow_child(event["body"])))
        await asyncio.gather(*self._sessions)

    async def leave(self) -> None:
        """End the sessions that are still open, such as that of multiprocessing's resource tracker."""
        await cancel_and_wait(*self._sessions)

    async def _follow_child(self, child: dict[str, Any]) -> None:
        port = child["connect"]["port"]
        self.ports.add(port)
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach(self.breakpoints, within=DEADLINE, subProcessId=child["subProcessId"])
            wait = functools.partial(client.wait_for_event, "stopped", "terminated", within=DEADLINE)
            while (event := await wait())["event"] == "stopped":
                self.stops += 1
                thread = event["body"]["threadId"]
                if self._look is not None:
                    await self._look(client, thread)
                await client.request("continue", {"threadId": thread}, within=DEADLINE)

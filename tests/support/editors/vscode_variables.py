"""An editor that shows variables as VS Code does: requested 0.4 s after `stopped`, and forgotten at `continued`."""

from __future__ import annotations

import asyncio
from typing import Any

from relay_client.dap import DapClient
from relay_core.dap.framing import Message
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE

__all__ = ["VariablesPane"]

SHOWN_AFTER = 0.4
"""`updateTreeScheduler` in variablesView.ts."""


class VariablesPane(DapClient):
    """A debug session that records what it receives, and when its variables are shown."""

    def __init__(self, *arguments: Any) -> None:
        self.received: list[str] = []
        """`stopped`, `continued`, and `variables` for a response, from the last step on."""
        super().__init__(*arguments)

    async def _dispatch(self, message: Message) -> None:
        name = message.get("event") or message.get("command")
        if name in {"stopped", "continued", "variables"}:
            self.received.append(str(name))
        await super()._dispatch(message)

    async def step(self, thread: int) -> None:
        """Step over one line."""
        self.received.clear()
        await self.request("next", {"threadId": thread}, within=DEADLINE)
        await self.wait_for_event("continued", within=DEADLINE)

    async def shown(self) -> tuple[dict[str, str], float]:
        """Return the first variables that are shown after the next `stopped`, and the seconds since it."""
        thread = (await self.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]
        started = asyncio.get_running_loop().time()
        while True:
            async with TaskSet() as tasks:
                looking = tasks.spawn(self._look(thread), name="look")
                left = tasks.spawn(self._left(), name="left")
                await asyncio.wait({looking, left}, return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    return looking.result(), asyncio.get_running_loop().time() - started
            await self.wait_for_event("stopped", within=DEADLINE)

    async def _left(self) -> None:
        """Wait until the program has continued, other than by the last step."""
        await self.wait_for_event("continued", within=None)

    async def _look(self, thread: int) -> dict[str, str]:
        await self.request("threads", within=DEADLINE)
        stack = await self.request("stackTrace", {"threadId": thread, "startFrame": 0, "levels": 20}, within=DEADLINE)
        await asyncio.sleep(SHOWN_AFTER)
        scopes = (await self.request("scopes", {"frameId": stack["stackFrames"][0]["id"]}, within=DEADLINE))["scopes"]
        reference = scopes[0]["variablesReference"]
        variables = (await self.request("variables", {"variablesReference": reference}, within=DEADLINE))["variables"]
        return {variable["name"]: variable["value"] for variable in variables}

"""What VS Code 1.139 requests for its call stack at a stop, and whether it shows "Load More Stack Frames" below it.

After `stopped` it requests the threads, and then the stack: one frame, and 0.42 s later 19 more, if the debug adapter
has the capability `supportsDelayedStackTraceLoading`; otherwise 20 frames. 50 ms after a change the tree is drawn, and
requests 20 frames itself if none is there yet. The end of the stack is reached when a response has fewer frames than
were requested, or as many as its `totalFrames`. As long as it is not, "Load More Stack Frames" is drawn; the end alone
does not make the tree draw again, only frames that differ from those of the last stop (`debugModel.ts`,
`callStackView.ts`).
"""

from __future__ import annotations

import asyncio

from relay_client.dap import Body, DapClient
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE

__all__ = ["CallStack"]

DRAWN_AFTER = 0.05
REST_AFTER = 0.42


class CallStack:
    """The call stack of one thread.

    Args:
        client: The connection to the debug adapter.
        capabilities: The adapter's response to `initialize`.
    """

    def __init__(self, client: DapClient, capabilities: Body) -> None:
        self.frames: list[Body] = []
        self.total: object = None
        """The last `totalFrames`."""
        self.offers_more = False
        """Whether "Load More Stack Frames" is shown."""
        self._client = client
        self._is_delayed = bool(capabilities.get("supportsDelayedStackTraceLoading"))
        self._at_end = False
        self._stale: list[Body] = []
        """The frames of the last stop."""

    async def show(self, thread: int) -> None:
        """Request and draw the stack of a thread that has just stopped, until nothing changes any more."""
        await self._client.request("threads", within=DEADLINE)
        self._stale, self.frames = self.frames, []
        async with TaskSet() as tasks:
            drawing = tasks.spawn(self._draw(thread), name="draw")
            await self._fetch(thread, 1 if self._is_delayed else 20)
            await drawing
            if not self._is_delayed:
                return
            await self._draw(thread)
            await asyncio.sleep(REST_AFTER - DRAWN_AFTER)
            await self._fetch(thread, 19)
            if self._stale[1:] != self.frames[1:] or len(self._stale) != len(self.frames):
                await self._draw(thread)

    async def _fetch(self, thread: int, levels: int) -> None:
        start = len(self.frames)
        arguments = {"threadId": thread, "startFrame": start, "levels": levels}
        body = await self._client.request("stackTrace", arguments, within=DEADLINE)
        self.total = body.get("totalFrames")
        self.frames[start:] = body["stackFrames"]
        self._at_end = len(body["stackFrames"]) < levels or self.total == len(self.frames)

    async def _draw(self, thread: int) -> None:
        await asyncio.sleep(DRAWN_AFTER)
        if not self.frames:
            await self._fetch(thread, 20)
        self.offers_more = not self._at_end

"""An editor whose program stands somewhere: what it asks for there, and how it lets the program move."""

from pathlib import Path

from relay_client.dap import Body, DapClient
from tests.support.machine.deadline import DEADLINE

__all__ = ["Stopped"]


class Stopped:
    """A debug session whose program is stopped, as soon as it has been waited for.

    Args:
        client: The connection to the debugger.
        thread: Which has stopped.
    """

    def __init__(self, client: DapClient, thread: int = 0) -> None:
        self.client = client
        self.thread = thread

    async def until_stopped(self) -> Body:
        """Wait until the program stops, and return the body of the event."""
        body: Body = (await self.client.wait_for_event("stopped", within=DEADLINE))["body"]
        self.thread = body["threadId"]
        return body

    async def frame(self) -> Body:
        """Return the frame where the program stands."""
        stack = await self.client.request("stackTrace", {"threadId": self.thread, "levels": 1}, within=DEADLINE)
        return stack["stackFrames"][0]

    async def function(self) -> str:
        """Return the name of the function where the program stands."""
        return (await self.frame())["name"]

    async def evaluate(self, expression: str, context: str = "watch") -> Body:
        """Return what an editor is answered for an expression in that frame."""
        arguments = {"expression": expression, "frameId": (await self.frame())["id"], "context": context}
        return await self.client.request("evaluate", arguments, within=DEADLINE)

    async def value(self, expression: str, context: str = "watch") -> str:
        """Return the value of an expression in that frame, as the editor shows it."""
        return (await self.evaluate(expression, context))["result"]

    async def run(self, script: Path, *lines: int) -> None:
        """Replace the breakpoints, and continue."""
        await self.client.set_breakpoints(str(script), [{"line": line} for line in lines], within=DEADLINE)
        await self.client.request("continue", {"threadId": self.thread}, within=DEADLINE)

    async def move(self, command: str) -> Body:
        """Execute `continue` or a step, and wait until the program has stopped again."""
        await self.client.request(command, {"threadId": self.thread}, within=DEADLINE)
        return await self.until_stopped()

    async def step(self) -> int:
        """Step over one line and return the line reached."""
        await self.move("next")
        return (await self.frame())["line"]

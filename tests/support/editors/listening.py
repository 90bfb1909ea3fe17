"""A launch configuration with "listen": an editor that waits for a job to dial."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from relay_client.dap import Body, DapClient, TcpStream
from tests.support.editors.stopped import Stopped
from tests.support.machine.deadline import DEADLINE

__all__ = ["ListeningEditor", "listening_editor"]


class ListeningEditor(Stopped):
    """A debug session that waits for a job to dial."""

    def __init__(
        self, adapter: asyncio.subprocess.Process, client: DapClient, attaching: "asyncio.Task[object]"
    ) -> None:
        super().__init__(client)
        self._adapter = adapter
        self.attached = attaching
        """Done when a job has dialled and the editor has attached."""

    async def until_stopped(self) -> Body:
        """Wait until a job has dialled, and stands at the breakpoint."""
        await self.attached
        return await super().until_stopped()

    async def leave(self) -> None:
        """Let the job run on, and end the adapter, as VS Code does: the port is free then."""
        await self.client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        self._adapter.kill()
        await self._adapter.wait()


@contextlib.asynccontextmanager
async def listening_editor(port: int, script: Path, line: int, **attach: Any) -> AsyncIterator[ListeningEditor]:
    """Start debugpy's adapter on pipes, as VS Code does, and let it listen; the block begins when it has the port.

    At the end of the block the adapter is killed.

    Args:
        port: Where it listens.
        script: Where it has a breakpoint.
        line: Likewise.
        attach: Further arguments of `DapClient.attach`.
    """
    adapter = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "debugpy.adapter"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert adapter.stdin is not None
    assert adapter.stdout is not None
    try:
        async with DapClient(TcpStream(adapter.stdout, adapter.stdin)) as client:
            attach |= {"listen": {"host": "127.0.0.1", "port": port}}
            attaching = asyncio.create_task(client.attach({str(script): [{"line": line}]}, within=DEADLINE, **attach))
            await client.wait_for_event("debugpyWaitingForServer", within=DEADLINE)
            yield ListeningEditor(adapter, client, attaching)
    finally:
        with contextlib.suppress(ProcessLookupError):
            adapter.kill()
        await adapter.communicate()

"""The test's end of the connection to the extension `control`, which drives one window through the VS Code API."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.machine.deadline import DEADLINE

__all__ = ["Control", "ControlServer", "Report", "control_server"]

LINE_LIMIT = 32 * 1024 * 1024
"""Bytes; a message may hold a whole source file."""


@dataclass(frozen=True)
class Report:
    """Something that happened in a debug session of the window."""

    session: str
    """The name of the launch configuration."""
    session_id: str
    at: float
    what: str
    """started, sent (by the editor), received, ended or error."""
    message: Any

    def is_request(self, command: str) -> bool:
        """Whether it is a request of the editor."""
        return self.what == "sent" and self.message.get("command") == command


class Control:
    """Operations of one window, and what its debug sessions have done so far."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reports: list[Report] = []
        self.version = ""
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._changed = asyncio.Condition()

    async def call(self, operation: str, **arguments: Any) -> Any:
        """Return the result of an operation of extension.js; raises RuntimeError with the error it failed with."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps({"id": number, "operation": operation, **arguments}).encode() + b"\n")
        try:
            return await asyncio.wait_for(self._answers[number], DEADLINE)
        except asyncio.TimeoutError:
            raise AssertionError(f"the window has not answered {operation!r}; {self._last()}") from None

    async def report(self, wanted: Callable[[Report], bool], *, after: int = 0) -> Report:
        """Return the first report that is wanted, of those from number `after` on; waits for it if needed."""

        def find() -> Report | None:
            return next((each for each in self.reports[after:] if wanted(each)), None)

        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(find), DEADLINE)
            except asyncio.TimeoutError:
                raise AssertionError(f"the debug session has not reported what is awaited; {self._last()}") from None
        found = find()
        assert found is not None
        return found

    def _last(self) -> str:
        """Return the last reports, one on each line."""
        return "\n".join(["its last reports:", *(str(report)[:300] for report in self.reports[-20:])])

    async def receive(self) -> None:
        """Read until the window is closed."""
        with contextlib.suppress(ConnectionError):
            while line := await self._reader.readline():
                await self._take(json.loads(line))

    async def _take(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            names = ("session", "sessionId", "at", "what")
            self.reports.append(Report(*(message[name] for name in names), message.get("message")))
            async with self._changed:
                self._changed.notify_all()
            return
        answer = self._answers.pop(message["id"])
        if answer.done():  # nobody waits any more
            return
        if "error" in message:
            answer.set_exception(RuntimeError(message["error"]))
        else:
            answer.set_result(message["value"])


class ControlServer:
    """Listens for windows; each sends the folder that it shows."""

    def __init__(self) -> None:
        self.port = 0
        self._windows: dict[str, Control] = {}
        self._changed = asyncio.Condition()

    async def window(self, folder: Path) -> Control:
        """Return the connection of the window that shows a folder, and forget it: the next one is another window."""
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: str(folder) in self._windows), DEADLINE)
            except asyncio.TimeoutError:
                raise AssertionError(f"no window shows {folder}, but {list(self._windows)}") from None
        return self._windows.pop(str(folder))

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one window until it is closed."""
        control = Control(reader, writer)
        try:
            hello = json.loads(await reader.readline() or b"{}")
            if not hello:
                return
            control.version = hello["version"]
            self._windows[hello["folder"]] = control
            async with self._changed:
                self._changed.notify_all()
            await control.receive()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def control_server() -> AsyncIterator[ControlServer]:
    """Listen on a free port for a block."""
    server = ControlServer()
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0, limit=LINE_LIMIT)
    async with listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server

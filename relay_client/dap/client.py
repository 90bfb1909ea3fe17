"""A small debugger without a user interface: requests, events, and the attach sequence of debugpy.

It serves the demo and the tests. Every wait has a deadline, and everything that waits fails at once when the
connection ends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay_client.dap.framing import Message, MessageDecoder, encode
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.net.compat import TIMEOUT_ERRORS, timeout
from relay_core.net.pump import READ_SIZE, set_nodelay
from relay_core.net.tasks import TaskSet

__all__ = ["DapClient", "RequestFailed"]

DEFAULT_TIMEOUT = 10.0
"""Seconds for one answer or event; a debugger on the same machine needs milliseconds."""
MAX_KEPT_EVENTS = 10_000
"""Events that nobody has waited for yet; the oldest go first. A chatty job sends one for each line it prints."""

Body = dict[str, Any]

_INITIALIZE = {
    "clientID": "relay-client",
    "adapterID": "debugpy",
    "pathFormat": "path",
    "linesStartAt1": True,
    "columnsStartAt1": True,
}


class RequestFailed(RelayDebugError):
    """The debug adapter refused a request; the sentence holds its reason."""


class DapClient:
    """One debug session over TCP.

        client = await DapClient.connect("127.0.0.1", 5678)
        await client.attach({"train.py": [{"line": 40}]})
        stopped = await client.wait_for_event("stopped")
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sequence = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._events: deque[Message] = deque(maxlen=MAX_KEPT_EVENTS)
        self._changed = asyncio.Event()
        """Set, and replaced by another, whenever an event comes or the connection ends."""
        self._lost: RelayDebugError | None = None
        self._tasks = TaskSet()
        self._tasks.spawn(self._receive(), name="DAP receiver")

    def __repr__(self) -> str:
        state = "closed" if self._lost else "open"
        return f"<DapClient {state} pending={len(self._answers)} events={len(self._events)}>"

    @classmethod
    async def connect(cls, host: str, port: int, *, within: float = DEFAULT_TIMEOUT) -> DapClient:
        """Return a client that is connected to a debug adapter, or to what leads to one.

        Raises:
            ConnectionLost: nothing answers there.
        """
        try:
            async with timeout(within):
                reader, writer = await asyncio.open_connection(host, port, limit=READ_SIZE)
        except (OSError, *TIMEOUT_ERRORS) as error:
            raise ConnectionLost(f"nothing answers on {host}:{port}") from error
        set_nodelay(writer)
        return cls(reader, writer)

    async def request(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, within: float = DEFAULT_TIMEOUT
    ) -> Body:
        """Send a request and return the body of its response.

        Raises:
            RequestFailed: the debug adapter refused it, or did not answer in time.
            ConnectionLost, ProtocolError: the connection ended.
        """
        return await self._body_of(self._send(command, arguments), within)

    async def wait_for_event(
        self, *names: str, matching: Callable[[Body], bool] = lambda _body: True, within: float = DEFAULT_TIMEOUT
    ) -> Message:
        """Return the oldest event with one of these names that nobody has taken yet, or the next that comes.

        Raises:
            RequestFailed: none came in time.
            ConnectionLost, ProtocolError: the connection ended first.
        """
        return await self._take_event(names, matching, within)

    async def attach(
        self, breakpoints: Mapping[str, Sequence[Body]], *, within: float = DEFAULT_TIMEOUT, **arguments: Any
    ) -> dict[str, list[Body]]:
        """Attach to the job with breakpoints in place before it runs on, and return how each was taken.

        Args:
            breakpoints: DAP SourceBreakpoints by source path.
            within: Seconds for each answer of the sequence.
            arguments: Further attach arguments, such as pathMappings.

        Raises:
            RequestFailed: a step was refused, for example because another debugger is attached.
            ConnectionLost, ProtocolError: the connection ended.
        """
        await self.request("initialize", _INITIALIZE, within=within)
        # debugpy answers an attach after configurationDone, and one that it refuses at once.
        attached = self._send("attach", {"type": "debugpy", "request": "attach", **arguments})
        await self._take_event(("initialized",), lambda _body: True, within, unless_refused=attached)
        taken = {path: await self.set_breakpoints(path, wanted) for path, wanted in breakpoints.items()}
        await self.request("configurationDone", within=within)
        await self._body_of(attached, within)
        return taken

    async def set_breakpoints(self, path: str, breakpoints: Sequence[Body]) -> list[Body]:
        """Replace the breakpoints of one source file and return how each was taken."""
        body = await self.request("setBreakpoints", {"source": {"path": path}, "breakpoints": list(breakpoints)})
        taken: list[Body] = body["breakpoints"]
        return taken

    async def close(self) -> None:
        """Close the connection; debugpy then lets the job run on without breakpoints."""
        self._end(ConnectionLost("the debug session is closed", code=1000))
        await self._tasks.cancel_all()
        self._writer.transport.abort()

    def _send(self, command: str, arguments: Mapping[str, Any] | None = None) -> asyncio.Future[Message]:
        if self._lost:
            raise self._lost
        sequence = next(self._sequence)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[sequence] = answer
        request = {"seq": sequence, "type": "request", "command": command, "arguments": dict(arguments or {})}
        self._writer.write(encode(request))
        return answer

    async def _body_of(self, answer: asyncio.Future[Message], within: float) -> Body:
        """Return the body of a response once it is there."""
        await self._until(answer.done, within, "the debugger did not answer")
        return _accepted(answer.result())

    async def _take_event(
        self,
        names: Sequence[str],
        matching: Callable[[Body], bool],
        within: float,
        *,
        unless_refused: asyncio.Future[Message] | None = None,
    ) -> Message:
        """Remove and return an event; a request that makes it impossible may be refused first."""

        def find() -> Message | None:
            if unless_refused is not None and unless_refused.done():
                _accepted(unless_refused.result())
            wanted = (event for event in self._events if event.get("event") in names)
            return next((event for event in wanted if matching(event.get("body") or {})), None)

        await self._until(lambda: find() is not None, within, f"no event '{' or '.join(names)}' came")
        ...

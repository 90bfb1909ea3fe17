"""A debug session as a person at a prompt sees it: the job runs or stands, and where it stands is looked at.

Frames, threads and evaluation; nothing here prints but what the job itself says.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relay_client.dap.client import DapClient, RequestFailed
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.dap.messages import Body
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import TaskSet

__all__ = ["Frame", "NotStopped", "Session"]

ATTACH_TIMEOUT = 60.0
"""Seconds for each answer of the attach: the first bytes make the job import debugpy, which may take half of this."""
DETACH_TIMEOUT = 5.0
"""Seconds for the goodbye; the job runs on at the end of the connection, too."""
MAIN_THREAD_GRACE = 0.5
"""Seconds for the main thread to stop after another one has; it needs a millisecond in Python, and for ever in C."""
OWN_CODE = ({"path": "**/relay_agent/**", "include": False},)
"""What is stepped over, as debugpy does with itself."""


class NotStopped(RelayDebugError):
    """Only a job that stands can be asked this."""


@dataclass(frozen=True)
class Frame:
    """One level of a stack."""

    id: int
    function: str
    path: str
    line: int

    @property
    def place(self) -> str:
        """Where it is, as pdb says it."""
        return f"{self.path}({self.line}){self.function}()"


class Session:
    """One attached debugger; an async context manager that lets go of the job at its end.

    Args:
        client: Connected, and not yet attached.
        on_output: Takes what the job prints.
        on_stop: Called when the job stops, or ends, while nobody waits for that.
        on_child: Takes the process id of a child that waits for a debugger.
    """

    def __init__(
        self,
        client: DapClient,
        on_output: Callable[[str], None],
        on_stop: Callable[[], Coroutine[Any, Any, None]],
        on_child: Callable[[int], Coroutine[Any, Any, None]],
    ) -> None:
        self.attached = False
        self.running = False
        self.over = ""
        """Why there is nothing left to debug."""
        self.lost: RelayDebugError | None = None
        """What ended the connection, if that was not the end of the job."""
        self.reason: Body = {}
        """The body of the last `stopped` event."""
        self.thread = 0
        self.frames: list[Frame] = []
        """Of the thread that is looked at, the innermost first."""
        self.level = 0
        """Which of them is looked at."""
        self._client = client
        self._on_output = on_output
        self._on_stop = on_stop
        self._on_child = on_child
        self._changed = asyncio.Event()
        self._expecting = 0
        self._leaving = False
        self._tasks = TaskSet()

    def __repr__(self) -> str:
        state = self.over or ("running" if self.running else f"stopped in thread {self.thread}")
        return f"<Session {state}>"

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self._tasks.cancel_all()

    async def attach(self, breakpoints: dict[str, list[Body]], *, pause: bool) -> dict[str, list[Body]]:
        """Attach, with breakpoints by path, and return how each was taken; with `pause` the job then stops."""
        taken = await self._client.attach(
            breakpoints,
            exceptions=["uncaught"],
            pause=pause,
            within=ATTACH_TIMEOUT,
            justMyCode=False,
            redirectOutput=True,
            rules=list(OWN_CODE),
        )
        self.attached = self.running = True
        self._tasks.spawn(self._listen(), name="DAP events")
        return taken

    async def detach(self) -> None:
        """Let the job run on, without this debugger."""
        self._leaving = True
        if not self.over:
            await self._client.request("disconnect", {"terminateDebuggee": False}, within=DETACH_TIMEOUT)

    async def request(self, command: str, **arguments: Any) -> Body:
        """Ask the adapter, and wait for its answer however long it takes."""
        return await self._client.request(command, arguments, within=None)

    # Running and standing

    async def pause(self) -> None:
        """Ask the job to stop; it does when its main thread, or any other, next comes to a line of Python."""
        await self.request("pause", threadId=await self._main_thread())

    async def halt(self, within: float) -> bool:
        """Pause, and wait until the job stands or has ended; False if it still runs after `within` seconds."""
        with self._expecting_stop():
            await self.pause()
            return await self.wait(within)

    async def resume(self, command: str, within: float | None = None, **arguments: Any) -> bool:
        """Let the job run by a DAP request such as "continue" or "next", and wait until it stops again or ends.

        Returns:
            False if it still runs after `within` seconds.

        Raises:
            NotStopped: it runs already.
            RequestFailed: the adapter refused; the job still stands where it did.
        """
        if self.running:  # one that stands in code that is stepped over has no frames
            self.must_stand()
        frames, self.frames, self.running = self.frames, [], True
        with self._expecting_stop():
            try:
                await self.request(command, threadId=self.thread, **arguments)
            except RequestFailed:
                self.frames, self.running = frames, False
                raise
            return await self.wait(within)

    async def wait(self, within: float | None = None) -> bool:
        """Wait until the job stands or has ended; False if it still runs after `within` seconds."""
        try:
            with self._expecting_stop():
                async with timeout(within):
                    while self.running and not self.over:
                        await self._changed.wait()
        except TIMEOUT_ERRORS:
            return False
        return True

    @contextlib.contextmanager
    def _expecting_stop(self) -> Iterator[None]:
        """Note that the caller sees to the next stop, from the request on that leads to it."""
        self._expecting += 1
        try:
            yield
        finally:
            self._expecting -= 1

    async def look(self) -> None:
        """Look at the innermost frame of the thread that has stopped; after a pause, of the main thread."""
        thread = int(self.reason.get("threadId") or 0)
        if self.reason.get("reason") == "pause":
            main = await self._main_thread()
            if main != thread and await self._stands(main):
                thread = main
        await self.look_at(thread)

    async def look_at(self, thread: int) -> None:
        """Look at the innermost frame of a thread."""
        self.frames = await self.stack(thread)
        self.thread, self.level = thread, 0

    async def stack(self, thread: int) -> list[Frame]:
        """Return the stack of a thread, the innermost frame first; also while it runs, as it is at this moment."""
        found = (await self.request("stackTrace", threadId=thread)).get("stackFrames", [])
        return [
            Frame(one["id"], one["name"], one.get("source", {}).get("path", one["name"]), one["line"]) for one in found
        ]

    async def threads(self) -> dict[int, str]:
        """Return the names of the threads."""
        return {one["id"]: one["name"] for one in (await self.request("threads")).get("threads", [])}

    async def main_stack(self) -> list[Frame]:
        """Return the stack of the main thread."""
        return await self.stack(await self._main_thread())

    def must_stand(self) -> None:
        """Check that the job stands.

        Raises:
            NotStopped: it does not.
        """
        if self.running or not self.frames:
            raise NotStopped("the job is running; 'c' lets it run until it stops, Ctrl-C then pauses it")

    @property
    def frame(self) -> Frame:
        """The frame that is looked at.

        Raises:
            NotStopped: the job runs.
        """
        self.must_stand()
        return self.frames[self.level]

    # Values

    async def evaluate(self, expression: str, context: str = "watch") -> str:
        """Return the text of an expression's value in the frame that is looked at.

        Args:
            expression: Python; in the context "repl" also a statement.
            context: One of DAP's; "watch" cuts long texts, "clipboard" does not, and shows errors as values.
        """
        body = await self.request("evaluate", expression=expression, frameId=self.frame.id, context=context)
        return str(body.get("result", ""))

    async def value(self, expression: str) -> object:
        """Return the value of an expression that is a literal, however long.

        Raises:
            RequestFailed: it is not, or could not be computed.
        """
        text = await self.evaluate(expression, "clipboard")
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise RequestFailed(f"the debugger answered '{text[:80]}'", reason=text) from None

    async def variables(self) -> dict[str, str]:
        """Return the local variables of the frame that is looked at, as text."""
        scopes: Sequence[Body] = (await self.request("scopes", frameId=self.frame.id)).get("scopes", [])
        if not scopes:
            return {}
        found = await self.request("variables", variablesReference=scopes[0]["variablesReference"])
        return {one["name"]: one["value"] for one in found.get("variables", []) if one.get("evaluateName")}

    # What the adapter tells

    async def _listen(self) -> None:
        try:
            while not self.over:
                event = await self._client.wait_for_event(within=None)
                self._take(event["event"], event.get("body") or {})
        except RelayDebugError as error:
            self.lost = error
            self._end(error.sentence)

    def _take(self, name: str, body: Body) -> None:
        if name == "output" and body.get("category") != "telemetry":
            self._on_output(str(body.get("output", "")))
        elif name == "stopped":
            self.running, self.reason = False, body
            self._tell()
        elif name == "debugpyAttach":
            self._tasks.spawn(self._on_child(int(body["subProcessId"])), name=f"child {body['subProcessId']}")
        elif name == "exited":
            self._end(f"the job has ended with exit code {body.get('exitCode')}")
        elif name == "terminated":
            self._end("the job has ended")

    def _end(self, why: str) -> None:
        self.over = self.over or why
        self.running = False
        self._tell()

    def _tell(self) -> None:
        if not self._expecting and not self._leaving:
            self._tasks.spawn(self._on_stop(), name="stopped")
        self._changed.set()
        self._changed = asyncio.Event()

    async def _main_thread(self) -> int:
        threads = await self.threads()
        return next((number for number, name in threads.items() if name == "MainThread"), min(threads, default=1))

    async def _stands(self, thread: int) -> bool:
        """Whether a thread has stopped, or does in the next moment: only then an expression can be evaluated in it."""
        deadline = asyncio.get_running_loop().time() + MAIN_THREAD_GRACE
        while asyncio.get_running_loop().time() < deadline:
            frames = await self.stack(thread)
            try:
                await self.request("evaluate", expression="0", frameId=frames[0].id, context="watch")
            except (RequestFailed, IndexError):
                await asyncio.sleep(0.05)
            else:
                return True
        return False

"""A debug session for a prompt: the job is running or stopped; when it is stopped, a thread and a frame are selected.

The session provides frames, threads and evaluation, but does not print anything.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from relay_client.dap import DapClient, DebugSession, HowEnded, RequestFailed, function_of, readable
from relay_client.editor.messages import CONSOLE, IMPORTANT
from relay_core.dap.messages import Body
from relay_core.errors import RelayDebugError
from relay_core.foreign import escape_controls

MAIN_THREAD_GRACE = 0.5
"""Seconds that the main thread has to stop after another thread; Python code takes a millisecond, and C code may never
stop."""
SKIPPED = "Frame skipped from debugging during step-in."
"""Start of debugpy's remark on a step past a frame that `attach_arguments` hide, such as the step out of the code that
waits for a debugger."""
EDITOR_FILE, HINT = "launch.json", " hint: "
"""What a hint of the agent mentions that is for users of an editor only, and how such a hint begins."""
MAX_CHILD_SESSIONS = 8
"""Maximum number of children that are connected to at the same time; the others wait."""
MAX_CHILDREN = 10_000
"""Maximum number of children that wait for a debug session; further ones are ignored."""


class NotStopped(RelayDebugError):
    """The operation requires a stopped job."""


@dataclass(frozen=True)
class Frame:
    """One level of a stack."""

    id: int
    function: str
    path: str
    line: int

    @property
    def place(self) -> str:
        """The location in pdb's format, as one line."""
        return escape_controls(f"{self.path}({self.line}){self.function}()")


class Session(DebugSession):
    """One debug session.

    Args:
        client: Connected, but not yet attached.
        on_output: Receives output from the job.
        on_stop: Called when the job stops or ends while no method is waiting for it.
        on_child: Receives the process id of a child that is waiting for a debug session.
        how_ended: Called when the debugger has reported the end of the job.
    """

    response_timeout = None
    # The rule makes debugpy hide and step over the frames of relay_agent, as it does with its own frames.
    attach_arguments: ClassVar = {"redirectOutput": True, "rules": [{"path": "**/relay_agent/**", "include": False}]}

    def __init__(
        self,
        client: DapClient,
        on_output: Callable[[str], None],
        on_stop: Callable[[], Coroutine[Any, Any, None]],
        on_child: Callable[[int], Coroutine[Any, Any, None]],
        how_ended: HowEnded | None = None,
    ) -> None:
        super().__init__(client, how_ended)
        self.is_pausing = False
        """Whether a pause was requested, and the job has not stopped since."""
        self.thread = 0
        """Id of the selected thread."""
        self.frames: list[Frame] = []
        """Frames of the selected thread, the innermost first; empty while the job is running."""
        self.level = 0
        """Index of the selected frame."""
        self._on_output = on_output
        self._on_stop = on_stop
        self._on_child = on_child
        self._child_slots = asyncio.Semaphore(MAX_CHILD_SESSIONS)
        self._children: set[int] = set()
        """Process ids of the children that `on_child` has not handled yet."""
        self._waiting_for_stop = 0
        """Number of callers that will handle the next stop."""

    async def attach(self, breakpoints: Mapping[str, Sequence[Body]], *, pause: bool = False) -> dict[str, list[Body]]:
        """Attach as in `DebugSession`."""
        results = await super().attach(breakpoints, pause=pause)
        self.is_pausing = pause and self.running
        return results

    @property
    def is_executing(self) -> bool:
        """Whether the job is still executing a command whose caller has stopped waiting."""
        return bool(self.client.abandoned)

    @property
    def unfinished(self) -> str:
        """What may still happen if the user stops waiting now, as the end of a sentence."""
        if self.running:
            return "the pause takes effect when the job next executes Python code"
        return "the job may still be executing the command" if self.attached else "not attached"

    # Execution

    async def pause(self) -> None:
        """Request a stop; each thread stops when it next executes a line of Python code."""
        await self.request("pause", threadId=await self._main_thread())
        self.is_pausing = self.running

    async def pause_and_wait(self, within: float) -> bool:
        """Pause, and wait until the job is stopped or has ended; return False if it is still running after that."""
        with self._handling_stop():
            await self.pause()
            return await self.wait(within)

    async def resume(self, command: str, within: float | None = None, **arguments: Any) -> bool:
        """Resume the job through a DAP request, such as "continue" or "next", and wait until it stops again or ends.

        Returns:
            False if it is still running after `within` seconds.

        Raises:
            NotStopped: the job is already running.
            RequestFailed: the adapter refused the request; the job is still stopped at the same place.
        """
        if self.running:  # do not check the frames: a job that is stopped in hidden code has none
            self.require_stopped()
        frames, self.frames = self.frames, []
        with self._handling_stop():
            try:
                await self.move(command, self.thread, **arguments)
            except RequestFailed:
                self.frames = [] if self.running else frames
                raise
            return await self.wait(within)

    async def leave_called(self) -> bool:
        """Run until the functions below the selected frame have returned, which makes it the innermost frame.

        Returns:
            False if the job has stopped for another reason, or has ended.
        """
        while self.level > 0:
            thread, depth = self.thread, len(self.frames) - self.level
            await self.resume("stepOut")
            if self.end_reason or (self.reason.get("reason"), self.stopped_thread) != ("step", thread):
                return False
            await self.select_thread(thread)
            self.level = len(self.frames) - depth  # negative if an exception has left the selected frame too
        return self.level == 0

    async def wait(self, within: float | None = None) -> bool:
        """Wait until the job is stopped or has ended; return False if it is still running after `within` seconds."""
        with self._handling_stop():
            return await super().wait(within)

    @contextlib.contextmanager
    def _handling_stop(self) -> Iterator[None]:
        """Suppress `on_stop` in a block that handles the next stop and contains the request that causes the stop."""
        self._waiting_for_stop += 1
        try:
            yield
        finally:
            self._waiting_for_stop -= 1

    async def select_stopped_thread(self) -> None:
        """Select the innermost frame of the thread that has stopped; after a pause, of the main thread if possible."""
        thread = self.stopped_thread
        if self.reason.get("reason") == "pause":
            main = await self._main_thread()
            if main != thread and await self._is_stopped(main):
                thread = main
        await self.select_thread(thread)

    async def select_thread(self, thread: int) -> None:
        """Select a thread and its innermost frame."""
        self.frames = await self.stack(thread)
        self.thread, self.level = thread, 0

    async def stack(self, thread: int) -> list[Frame]:
        """Return the stack of a thread, the innermost frame first; for a running thread, its current stack."""
        found = (await self.request("stackTrace", threadId=thread)).get("stackFrames", [])
        with readable():
            names = [(one, function_of(one)) for one in found]
            return [
                Frame(one["id"], name, str(one.get("source", {}).get("path", name)), int(one["line"]))
                for one, name in names
            ]

    async def threads(self) -> dict[int, str]:
        """Return the names of the threads."""
        found = (await self.request("threads")).get("threads", [])
        with readable():
            return {int(one["id"]): str(one["name"]) for one in found}

    async def main_stack(self) -> list[Frame]:
        """Return the stack of the main thread."""
        return await self.stack(await self._main_thread())

    def require_stopped(self) -> None:
        """Check that the job is stopped.

        Raises:
            NotStopped: it is running.
        """
        if self.running or not self.frames:
            pause = "for the stop" if self.is_pausing else "until it stops, then press Ctrl-C to pause it"
            look = "; 'w' shows the stack, and 'relay-client stacks --locals' its variables" * self.is_pausing
            raise NotStopped("the job is running", hint=f"enter 'c' to wait {pause}{look}")

    @property
    def frame(self) -> Frame:
        """The selected frame.

        Raises:
            NotStopped: the job is running.
        """
        self.require_stopped()
        return self.frames[self.level]

    # Values

    async def evaluate(self, expression: str, context: str = "watch") -> str:
        """Return the value of an expression in the selected frame, as text.

        Args:
            expression: A Python expression; with the context "repl", also a statement.
            context: A context of DAP: "watch" truncates long text; "clipboard" does not, and returns errors as values.
        """
        body = await self.request("evaluate", expression=expression, frameId=self.frame.id, context=context)
        with readable():
            return str(body.get("result", ""))

    async def value(self, expression: str) -> object:
        """Return the value of an expression whose repr is a Python literal, of any length.

        Raises:
            RequestFailed: the repr is not a literal, or the evaluation failed.
        """
        text = await self.evaluate(expression, "clipboard")
        try:
            return ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise RequestFailed(f"the debugger answered '{text[:80]}'", reason=text) from None

    async def variables(self) -> dict[str, str]:
        """Return the local variables of the selected frame, as text by name."""
        scopes: Sequence[Body] = (await self.request("scopes", frameId=self.frame.id)).get("scopes", [])
        if not scopes:
            return {}
        with readable():
            found = await self.request("variables", variablesReference=scopes[0]["variablesReference"])
            named = [one for one in found.get("variables", []) if one.get("evaluateName")]
            return {str(one["name"]): str(one["value"]) for one in named}

    # Events from the adapter

    def _handle_event(self, name: str, body: Body) -> None:
        self.is_pausing &= name != "stopped"
        if name == "output":
            category, text = body.get("category"), str(body.get("output", ""))
            if category == CONSOLE and EDITOR_FILE in text:
                text = f"{text.partition(HINT)[0]}\n"
            if category != "telemetry" and not (category == IMPORTANT and text.startswith(SKIPPED)):
                self._on_output(text)
        elif name == "debugpyAttach":
            pid = int(body["subProcessId"])
            if pid not in self._children and len(self._children) < MAX_CHILDREN:
                self._children.add(pid)
                self._tasks.spawn(self._handle_child(pid), name=f"child {pid}")
        else:
            super()._handle_event(name, body)

    async def _handle_child(self, pid: int) -> None:
        async with self._child_slots:
            await self._on_child(pid)
        self._children.discard(pid)

    def _notify(self) -> None:
        """Wake the waiting callers; call `on_stop` if there is none."""
        if not self._waiting_for_stop and not self._detaching:
            self._tasks.spawn(self._on_stop(), name="stopped")
        super()._notify()

    async def _main_thread(self) -> int:
        threads = await self.threads()
        return next((number for number, name in threads.items() if name == "MainThread"), min(threads, default=1))

    async def _is_stopped(self, thread: int) -> bool:
        """Return True if a thread can evaluate an expression within a grace period, and has therefore stopped."""
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

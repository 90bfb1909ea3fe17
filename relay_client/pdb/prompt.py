"""The prompt: lines in, Ctrl-C, and the end, in which the job is let go whatever has happened.

The main thread reads lines, because Ctrl-C arrives there; a second one runs the asyncio loop that speaks to the job.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from relay_client.dap.client import DapClient
from relay_client.pdb import execution, inspection  # noqa: F401 - importing them registers their commands
from relay_client.pdb.child_processes import Connect
from relay_client.pdb.command_table import execute, split
from relay_client.pdb.debugger import PAUSE_PATIENCE, Debugger
from relay_client.pdb.screen import Screen
from relay_core.net.tasks import cancel_and_wait

__all__ = ["Reached", "local_session", "run_pdb"]

T = TypeVar("T")
REPEATABLE = frozenset({"n", "next", "s", "step", "u", "up", "d", "down", "l", "list", "unt", "until"})
"""What an empty line does again; it must not evaluate anything twice."""


class Reached(NamedTuple):
    """A job that can be debugged."""

    client: DapClient
    connect: Connect
    crashed: bool = False
    """It is held at an exception, and shows that by itself."""


@contextlib.asynccontextmanager
async def local_session(host: str, port: int, *, crashed: bool = False) -> AsyncIterator[Reached]:
    """Connect to a debug adapter, or a forwarded port, by its address.

    Raises:
        ConnectionLost: on entering, nothing answers there.
    """

    async def connect() -> DapClient:
        return await DapClient.connect(host, port)

    async with await connect() as client:
        yield Reached(client, connect, crashed)


def run_pdb(
    connection: AbstractAsyncContextManager[Reached],
    *,
    title: str = "job",
    cwd: str = "",
    stop: bool = True,
    breakpoints: Sequence[str] = (),
) -> int:
    """Debug at the prompt until the user leaves or the job ends, and return the exit status.

    Must be called in the main thread, with no asyncio loop in it.

    Args:
        connection: Entered and left in a loop of its own, in another thread.
        title: What the prompt calls the job, for example "rank 0".
        cwd: The job's working directory, if it is known: names of files in `breakpoints` may be relative to it.
        stop: Pause the job at once; without, it runs on until a breakpoint or Ctrl-C.
        breakpoints: To be set at once, such as "train.py:12" or "train.py:12, epoch == 3".

    Raises:
        RelayDebugError: the job cannot be attached to, or the connection was lost.
    """
    screen = Screen()
    lost = None

    async def begin(debugger: Debugger) -> None:
        await debugger.begin(stop=stop, crashed=loop.crashed, breakpoints=list(breakpoints))

    with contextlib.suppress(_Ended), _ending_signals(), _Loop(connection, screen, cwd) as loop:
        session = loop.debugger.session
        prompt = _Prompt(loop, f"({title}) ")
        try:
            screen.show(f"attaching to {title}; h shows the commands, q or Ctrl-D leaves the job running")
            prompt.carry_out(begin(loop.debugger))
            prompt.read_lines()
        finally:
            lost = session.lost
            if session.attached and not session.over:
                loop.call(session.detach()).result()
                screen.show(f"detached; {title} runs on")
    if lost is not None:
        raise lost
    return 0


class _Ended(BaseException):
    """Somebody has closed the terminal or asked this program to end."""


class _Prompt:
    """Reads lines and has them carried out."""

    def __init__(self, loop: _Loop, prompt: str) -> None:
        self._loop = loop
        self._debugger = loop.debugger
        self._prompt = prompt
        self._last = ""

    def read_lines(self) -> None:
        """Do so until the user leaves or the job has ended."""
        session = self._debugger.session
        while session.attached and not session.over and not self._debugger.left:
            try:
                self._read_line()
            except KeyboardInterrupt:  # the line is gone
                self._debugger.screen.show("")
            except (EOFError, OSError):  # Ctrl-D, the end of a script, or a terminal that has gone
                return

    def _read_line(self) -> None:
        line = self._debugger.screen.ask(self._prompt).strip() or self._last
        self._last = line if split(line)[0] in REPEATABLE else ""
        if not self._debugger.session.over:
            self.carry_out(execute(self._debugger, line))

    def carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a command; Ctrl-C pauses the job if it runs, and gives up waiting otherwise."""
        future, patience = self._loop.call(work), None
        while True:
            try:
                return future.result(patience)
            except KeyboardInterrupt:
                self._debugger.screen.show("")  # the terminal has shown ^C
                if not self._debugger.session.running or patience is not None:
                    future.cancel()
                    self._debugger.screen.show("given up; the job may still be working on it")
                    return None
                patience = PAUSE_PATIENCE
                self._loop.call(self._debugger.session.pause())
            except concurrent.futures.TimeoutError:
                if future.done():
                    raise
                future.cancel()
                self._loop.call(self._debugger.show_busy()).result()
                return None


class _Loop:
    """A thread with an asyncio loop, in which the connection and the debugger live."""

    def __init__(self, connection: AbstractAsyncContextManager[Reached], screen: Screen, cwd: str) -> None:
        self.debugger: Debugger
        self._connection = connection
        self._screen = screen
        self._cwd = cwd
        self._loop = asyncio.new_event_loop()
        self._leave = asyncio.Event()
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._life: concurrent.futures.Future[None]
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay-client pdb")

    def __enter__(self) -> _Loop:
        self._thread.start()
        self._life = self.call(self._live())
        self._life.add_done_callback(self._ended_early)
        try:
            self._ready.result()
        except BaseException:
            self._life.cancel()
            self._end()
            raise
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._leave.set)
        try:
            self._life.result()
        finally:
            self._life.cancel()  # the user is in a hurry
            self._end()

    def call(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _live(self) -> None:
        async with (
            self._connection as (client, connect, self.crashed),
            Debugger(client, connect, self._screen, cwd=self._cwd) as self.debugger,
        ):
            self._ready.set_result(None)
            await self._leave.wait()

    def _ended_early(self, life: concurrent.futures.Future[None]) -> None:
        """Hand on why there is no connection."""
        if not self._ready.done():
            error = None if life.cancelled() else life.exception()
            self._ready.set_exception(error or asyncio.CancelledError())

    def _end(self) -> None:
        """End the loop and its thread, after the tasks in it."""
        with contextlib.suppress(concurrent.futures.CancelledError):
            self.call(self._finish_tasks()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish_tasks(self) -> None:
        await cancel_and_wait(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


@contextlib.contextmanager
def _ending_signals() -> Iterator[None]:
    """Let signals that would end this program end the session first: a job must not stand until somebody notices."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _Ended

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

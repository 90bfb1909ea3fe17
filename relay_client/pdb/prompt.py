"""The prompt of `relay-client pdb`: reading lines, handling Ctrl-C, and detaching from the job in every case.

The main thread reads the lines because it receives Ctrl-C. A second thread runs the asyncio loop with the connection.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Any, TypeVar

from relay_client.editor.notices import PAUSE_TIMEOUT
from relay_client.pdb.breakpoints import parse_initial
from relay_client.pdb.commands import REPEATABLE, execute, is_quit, split
from relay_client.pdb.debugger import RUNNING, DebugConnection, Debugger, Screen
from relay_client.ui.background import log_to
from relay_core.net.tasks import cancel_and_wait

T = TypeVar("T")
TYPED_AHEAD = 1.0
"""Seconds for which a command may run before what is typed is an answer to it; before, it is for the next prompt."""
READ_INTERVAL = 0.1
"""Seconds between checks whether something was typed while the job runs."""


def run_pdb(
    connection: AbstractAsyncContextManager[DebugConnection],
    *,
    title: str = "job",
    stop: bool = True,
    breakpoints: Sequence[str] = (),
) -> int:
    """Debug at the prompt until the user quits or the job ends, and return the exit status.

    Must be called in the main thread, without a running asyncio loop.

    Args:
        connection: Entered and exited in an asyncio loop in another thread.
        title: The job's name in the prompt, for example "rank 0".
        stop: Whether to pause the job immediately, rather than when it hits a breakpoint or the user presses Ctrl-C.
        breakpoints: Breakpoints to set first, such as "train.py:12" or "train.py:12, epoch == 3".

    Raises:
        UsageError: a breakpoint is invalid.
        RelayDebugError: attaching failed, or the connection was lost.
    """
    initial = [parse_initial(text) for text in breakpoints]
    screen = Screen()
    lost, why = None, ""
    is_terminal = screen.is_terminal and sys.stdout.isatty() and sys.stderr.isatty()
    log = log_to(screen) if is_terminal else contextlib.nullcontext()
    with log, contextlib.suppress(_Terminated), _termination_signals(), _LoopThread(connection, screen) as loop:
        session = loop.debugger.session
        prompt = _Prompt(loop, f"({title}) ")
        try:
            after = "lets the crashed job exit" if loop.debugger.connection.crashed else "leaves the job running"
            screen.show(f"attaching to {title}; h shows the commands, q or Ctrl-D {after}")
            prompt.run(loop.debugger.begin(initial, stop=stop))
            why = prompt.read_lines()
        except _Terminated as ended:
            why = f"received {ended}; "
            raise
        finally:
            lost = session.lost
            if session.attached and not session.end_reason:
                loop.call(session.detach()).result()
                then = "exits with its exception" if loop.debugger.exits else "continues"
                then += " once the command has ended" * session.is_executing
                screen.show(f"{why}detached; {title} {then}")
    if lost is not None:
        raise lost
    return 0


class _Terminated(BaseException):
    """This program has received SIGTERM, or SIGHUP because the terminal was closed; the text is the signal's name."""


class _Prompt:
    """Reads lines and executes them."""

    def __init__(self, loop: _LoopThread, prompt: str) -> None:
        self._loop = loop
        self._debugger = loop.debugger
        self._prompt = prompt
        self._last = ""

    def read_lines(self) -> str:
        """Read and execute lines until the user quits or the job has ended; return why, if it is neither of these."""
        session = self._debugger.session
        while session.attached and not session.end_reason and not self._debugger.quit_requested:
            try:
                self._read_line()
            except KeyboardInterrupt:  # discards the line that is being typed
                self._debugger.screen.show("")
            except (EOFError, OSError):  # Ctrl-D, the end of piped input, or a closed terminal
                return "" if self._debugger.screen.is_terminal else "no more input; "
        return ""

    def _read_line(self) -> None:
        line = self._debugger.screen.ask(self._prompt).strip() or self._last
        if not self._debugger.session.end_reason:
            self.run(execute(self._debugger, line))
        self._last = line if split(line)[0] in REPEATABLE and not self._debugger.refused else ""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a command and wait for it; Ctrl-C pauses a running job, or cancels the wait if the job is stopped.

        While the job runs, `q` and Ctrl-D end the wait and detach. Other lines from a terminal are refused, because
        they were not typed for the place where the job stops next; those from a pipe are kept for it.
        """
        future, began, deadline, shown = self._loop.call(work), time.monotonic(), math.inf, ""
        try:
            while not self._debugger.quit_requested:
                try:
                    if concurrent.futures.wait([future], READ_INTERVAL).done:
                        return future.result()
                    if deadline < math.inf and self._interrupted:
                        deadline = time.monotonic() + PAUSE_TIMEOUT
                    if time.monotonic() >= deadline:
                        future.cancel()
                        self._loop.call(self._debugger.show_still_running()).result()
                        return None
                    if self._debugger.session.running and time.monotonic() >= began + TYPED_AHEAD:
                        self._answer_typed()
                        if (waits := self._debugger.connection.waits()) and waits != shown:
                            self._debugger.screen.show(f"still running: {(shown := waits)}")
                except KeyboardInterrupt:
                    self._debugger.screen.show("")  # the terminal has shown ^C
                    session, interrupted = self._debugger.session, self._interrupted
                    if session.running and interrupted:
                        self._debugger.screen.show(f"not paused: {interrupted}")
                        continue
                    if not session.running or deadline < math.inf:
                        self._debugger.screen.show(f"stopped waiting; {interrupted or session.unfinished}")
                        return None
                    deadline = time.monotonic() + PAUSE_TIMEOUT
                    self._loop.call(session.pause())
        finally:
            future.cancel()  # otherwise, it would report the end of a session that is being detached as the job's end

    def _answer_typed(self) -> None:
        """Detach if the user has typed so while the job is running; show why any other line is not executed."""
        typed = self._debugger.screen.typed()
        if any(not line or is_quit(line) for line in typed):
            self._debugger.quit_requested = True
        elif typed:
            self._debugger.screen.show(f"not executed: {self._interrupted or RUNNING}")

    @property
    def _interrupted(self) -> str:
        """What is true of the job while nothing reaches it; "" if the connection is not interrupted."""
        then = "a command that has not reached the job is executed once it is connected again"
        return f"{outage.sentence}; {then}" if (outage := self._debugger.connection.outage()) else ""


class _LoopThread:
    """A thread with an asyncio loop, in which the connection and the debugger run."""

    def __init__(self, connection: AbstractAsyncContextManager[DebugConnection], screen: Screen) -> None:
        self.debugger: Debugger
        self._connection = connection
        self._screen = screen
        self._loop = asyncio.new_event_loop()
        self._exiting = asyncio.Event()
        self._connected: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._main: concurrent.futures.Future[None]
        """Result of `_run`."""
        # A daemon: the program must exit even if a signal interrupts `_stop`.
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay-client pdb", daemon=True)

    def __enter__(self) -> _LoopThread:
        self._thread.start()
        self._main = self.call(self._run())
        try:
            concurrent.futures.wait([self._connected, self._main], return_when=concurrent.futures.FIRST_COMPLETED)
            if self._main.done():
                self._main.result()
        except BaseException:
            self._main.cancel()
            self._stop()
            raise
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._exiting.set)
        try:
            self._main.result()
        finally:
            self._main.cancel()  # after a second Ctrl-C, the previous command is still running
            self._stop()

    def call(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine in the loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _run(self) -> None:
        """Keep the connection and the debugger open until the context manager exits."""
        async with self._connection as connected:
            self.debugger = Debugger(connected, self._screen)
            async with self.debugger.session:
                self._connected.set_result(None)
                await self._exiting.wait()

    def _stop(self) -> None:
        """Cancel the remaining tasks, and stop the loop and its thread."""
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
def _termination_signals() -> Iterator[None]:
    """Raise _Terminated in the main thread on SIGTERM and SIGHUP, so that the program detaches before it exits.

    Otherwise, the job could remain stopped until somebody notices.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        raise _Terminated(signal.Signals(number).name)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

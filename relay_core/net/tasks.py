"""Work on the event loop: tasks, which are only started here, ends of connections and processes, and later calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from relay_core.compat import timeout
from relay_core.errors import RelayDebugError

logger = logging.getLogger(__name__)


# The only place that starts asyncio tasks: they are named, referenced until they end, and their errors are logged.
#
#     TaskSet            independent tasks of one owner; an error is logged and does not affect the others
#     run_together       tasks that succeed or fail together: the first error cancels the others and is raised
#     first_completed    a race: the winner's result is returned or its error is raised; the others are cancelled
#     first_success      the same attempt again while the first one has not ended; the others are cancelled
#
# `run_together` replaces asyncio.TaskGroup, which requires Python 3.11. It is simpler, because all tasks are known at
# the start.

T = TypeVar("T")


class TaskSet:
    """Independent tasks of one owner.

    If a task raises, the error is logged with its traceback, and the other tasks continue. Leaving the `async with`
    block cancels the tasks that are still running and waits until they have ended.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start a task and keep a reference to it until it is done."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def cancel_all(self) -> None:
        """Cancel every task and wait until each has ended."""
        await cancel_and_wait(*self._tasks)

    async def __aenter__(self) -> TaskSet:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.cancel_all()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        _log_crash(task)


async def run_together(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run coroutines concurrently until all are done; the first error cancels the others and is raised."""
    tasks = [_start(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)


async def first_completed(
    *contenders: Coroutine[Any, Any, object] | asyncio.Future[Any],
    timeout: float | None = None,
    discard: Callable[[Any], object] = lambda _result: None,
) -> object:
    """Wait until one of several coroutines or futures is done; if several are, the first argument among them wins.

    Args:
        contenders: Coroutines, which are started here and cancelled before this returns, or the caller's tasks and
            futures, which are not cancelled.
        timeout: Seconds.
        discard: Called with the result of each coroutine that succeeded at the same moment as the winner, or as the
            caller was cancelled.

    Returns:
        The winner's result; None after a time-out.

    Raises:
        Exception: The winner's error. Errors of other coroutines are logged, a RelayDebugError without a traceback.
    """
    futures: list[asyncio.Future[Any]] = [
        each if isinstance(each, asyncio.Future) else _start(each) for each in contenders
    ]
    started = [future for future, each in zip(futures, contenders, strict=True) if future is not each]
    winner = None
    try:
        done, _ = await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        winner = next((future for future in futures if future in done), None)
    finally:
        await _end_losers(started, winner, discard)
        for task in started:
            if task is not winner:
                _log_loser(task)
    return None if winner is None else winner.result()


async def first_success(
    attempt: Callable[[], Coroutine[Any, Any, T]],
    *,
    again_after: Sequence[float],
    may_repeat: Callable[[], bool],
    is_final: Callable[[BaseException], bool],
    discard: Callable[[T], object],
) -> T:
    """Return the first result of an attempt that is started again, in parallel, each time it has not ended in time.

    Args:
        attempt: Safe to run several times at once.
        again_after: Seconds from one start to the next; their number limits the attempts.
        may_repeat: Asked before each further start.
        is_final: Whether an error ends the other attempts too.
        discard: Called with the result of an attempt that succeeded at the same moment as another.

    Raises:
        Exception: An error that is final, or the last one if no attempt is left.
    """
    tasks = [_start(attempt())]
    running, delays = set(tasks), iter(again_after)
    winner: asyncio.Task[T] | None = None
    try:
        while True:
            done, running = await asyncio.wait(running, timeout=next(delays, None), return_when=asyncio.FIRST_COMPLETED)
            winner = next((task for task in done if task.exception() is None), None)
            if winner is not None:
                return winner.result()
            errors = [error for task in done if (error := task.exception()) is not None]
            if final := [error for error in errors if not running or is_final(error)]:
                raise final[0]
            if not done and may_repeat():
                tasks.append(_start(attempt()))
                running = running | {tasks[-1]}
    finally:
        await _end_losers(tasks, winner, discard)


async def _end_losers(
    tasks: Iterable[asyncio.Future[Any]], winner: asyncio.Future[Any] | None, discard: Callable[[Any], object]
) -> None:
    """Cancel the tasks of a race, wait until they have ended, and discard all results but the winner's."""
    try:
        await cancel_and_wait(*tasks)
    except asyncio.CancelledError:
        winner = None  # nobody gets its result any more
        raise
    finally:
        for task in tasks:
            if task is not winner and task.done() and not task.cancelled() and task.exception() is None:
                discard(task.result())


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended; their errors are not raised (a TaskSet logs them)."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


def frames_of(error: BaseException) -> str:
    """Return where an error was raised, for logs: its traceback without its text, which may contain a secret."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"


def _start(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(coroutine, name=getattr(coroutine, "__qualname__", None))


def _log_loser(task: asyncio.Future[Any]) -> None:
    """Log the error of a coroutine that ended at the same moment as the winner, or as the race was cancelled."""
    if not task.cancelled() and isinstance(error := task.exception(), RelayDebugError):
        logger.debug("another task has ended as well: %s", error.sentence)
    else:
        _log_crash(task)


def _log_crash(task: asyncio.Future[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        name = task.get_name() if isinstance(task, asyncio.Task) else repr(task)
        logger.error("task %s crashed", name, exc_info=error)


async def close_writer(writer: asyncio.StreamWriter) -> None:
    """Close a connection after sending the last bytes; the peer may have closed or reset it already."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def end_process(process: asyncio.subprocess.Process, *, within: float) -> None:
    """Terminate a child process, and wait until it has exited; kill it if that takes longer than `within` seconds."""
    for end in (process.terminate, process.kill):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            end()
        await first_completed(process.wait(), timeout=within)


async def output_of(*command: str, within: float) -> tuple[int | None, bytes, bytes]:
    """Run a program, and return its exit status, stdout and stderr; it is killed if the caller is cancelled.

    Raises:
        TimeoutError: the program took longer than `within` seconds, and was killed; one of `TIMEOUT_ERRORS`.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with timeout(within):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()  # returns immediately, and closes the pipes
    return process.returncode, output, errors


class Paced:
    """Calls a function at once if it has rarely been called lately, and otherwise later, once for several requests.

    Args:
        callback: Called in the event loop, after the last request in any case; it may request the next call.
        interval: Seconds from one call to the next in the long run; `share` times the duration of a call if that is
            longer, so that nobody who causes calls keeps the event loop busy.
        burst: Seconds whose calls may be made at once after a pause.
        share: See `interval`.
    """

    def __init__(
        self, callback: Callable[[], None], interval: float, burst: float = 0.0, *, share: float = 10.0
    ) -> None:
        self._callback = callback
        self._interval = interval
        self._burst = burst
        self._share = share
        self._next = 0.0
        """When the next call may be made, by the monotonic clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._called = asyncio.Event()
        """Set by the next call."""

    def request(self) -> None:
        """Call the function now, or once later for all requests until then."""
        if self._timer is None:
            delay = max(0.0, self._next - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self.flush)
            if not delay:
                self.flush()

    def flush(self) -> None:
        """If a call has been requested, make it now."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        called, self._called = self._called, asyncio.Event()
        started = time.monotonic()
        earliest = max(self._next, started - self._burst)
        self._next = earliest + self._interval  # for a request that the call itself makes
        try:
            self._callback()
        finally:
            self._next = max(self._next, earliest + max(self._interval, self._share * (time.monotonic() - started)))
            called.set()

    async def until_called(self) -> None:
        """Wait until the requested call, if there is one, has been made."""
        if self._timer is not None:
            await self._called.wait()


# Timer for the deadlines of a sans-IO machine, which move with almost every event.

SOON = 0.0
"""A deadline that has passed: the function is called in the next iteration of the event loop, once for all events that
arrive together."""


class DeadlineTimer:
    """Calls a function at the earliest deadline that was set.

    When a deadline moves to a later time, the timer is kept. It then fires early, when the machine has nothing to do
    but set the next deadline. That is cheaper than cancelling and creating a timer for each frame.

    Args:
        callback: Called in the event loop; the timer is not set while it runs.
    """

    def __init__(self, callback: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the timer fires. Stored here, because uvloop's timer handle cannot report the time after the timer has
        fired.
        """

    def set(self, deadline: float | None) -> None:
        """Call the function at `deadline` (of the loop's clock) or earlier; None changes nothing."""
        if deadline is None:
            return
        if self._handle is not None:
            if self._due <= deadline:
                return
            self._handle.cancel()
        self._due = deadline
        self._handle = self._loop.call_at(deadline, self._fire)

    def cancel(self) -> None:
        """Forget the deadline; another one may be set."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._callback()

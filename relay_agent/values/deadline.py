"""Calls with a deadline, in helper threads that are abandoned when it has passed, and limits for slow values."""

from __future__ import annotations

import os
from _contextvars import copy_context
from _queue import Empty, SimpleQueue  # C code: the job may have a file queue.py, and gevent replaces `queue`
from collections.abc import Callable
from typing import Any, TypeVar

from relay_agent.job.gevent_originals import threading, time
from relay_agent.job.helper_thread import start_helper
from relay_agent.values.torch_state import NotRead, read_torch_state, taken_over

# Calls with a deadline: a function that may never return runs in a helper thread and is abandoned at its deadline.
#
# Python cannot interrupt a thread, so an abandoned call continues until it returns. Its thread is a daemon thread that
# pydevd does not trace, stop or list. It has the context variables and torch's state of the thread that waits.
#
# Alternatives: an exception that is raised in the other thread (`PyThreadState_SetAsyncExc`) does not reach a call that
# is inside C code, which is what a tensor behind a blocked kernel is; a signal reaches the main thread only; a process
# has none of the values. Without a deadline, one value whose `repr` blocks delays every request for the variables of
# its frame for as long as it blocks (6.1 s in a test).
#
# What is ugly and stays: an abandoned call keeps its thread, and the locks that it holds, until it returns.

IDLE_TIME = 30.0
"""Seconds after which an idle helper thread exits."""

T = TypeVar("T")


class TooLate(Exception):
    """A call did not return before its deadline.

    Args:
        call: The call, which continues.
    """

    def __init__(self, call: Call) -> None:
        super().__init__("not in time")
        self.call = call


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Return the result of a function, or raise its exception.

    Raises:
        TooLate: the function did not return within `seconds`.
    """
    call = Call(function)
    _helpers.start(call)
    if not call.finished.acquire(timeout=seconds):
        raise TooLate(call)
    if call.error is not None:
        raise call.error
    result: T = call.result
    return result


class Call:
    """One call to a function in a helper thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.finished = threading.Lock()
        """Released when the function has returned."""
        self.finished.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        self._process: int | None = os.getpid()
        """The process whose thread executes the call, until it has returned."""
        self._function: Callable[[], Any] | None = function
        self._context = copy_context()
        self._torch_state = read_torch_state()

    @property
    def is_running(self) -> bool:
        """Whether the function has not returned; False in a forked child, which does not have the thread."""
        return self._process == os.getpid()

    def execute(self) -> None:
        """Call the function in this thread."""
        try:
            with taken_over(self._torch_state):
                self.result = self._context.run(self._function)  # type: ignore[arg-type] # set until it has returned
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting thread
            self.error = error
        self._function = self._torch_state = None  # an abandoned call must not keep the job's objects alive
        self._process = None
        self.finished.release()


class _Helpers:
    """Threads that execute one call at a time each, and are reused for later calls."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Discard all helpers in a forked child, which does not have their threads; one of them may hold the lock."""
        self.lock = threading.Lock()
        """Held while the number of idle helpers changes, and while it is decided how long a call may take."""
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._idle = 0
        """How many helpers are waiting for a call, without those for which one is in the queue."""

    def start(self, call: Call) -> None:
        """Execute a call as soon as possible."""
        with self.lock:
            is_one_idle = self._idle > 0
            self._idle -= is_one_idle
        if not is_one_idle:
            start_helper(self._run, "relay-agent values")
        self._calls.put(call)

    def _run(self) -> None:
        """Execute calls until none has arrived for a while."""
        while True:
            try:
                call = self._calls.get(timeout=IDLE_TIME)
            except Empty:
                with self.lock:
                    if not self._idle:  # a call is about to arrive
                        continue
                    self._idle -= 1
                    return
            call.execute()
            del call
            with self.lock:
                self._idle += 1


_helpers = _Helpers()
os.register_at_fork(after_in_child=_helpers.forget)


# Limits for slow values: no `repr` in a job delays the others, whether it sleeps, hangs or is merely slow.
#
# Each `repr` has the deadline `REPR_DEADLINE`. While a `repr` that missed its deadline is still running, no other
# `repr` of the same type is started; while `MAX_LATE` such calls are running, none is started at all. All calls share a
# budget, which refills with time: a hundred values that take a third of a second each must not take half a minute. All
# of this applies to properties, too.

REPR_DEADLINE = 0.4
"""Deadline in seconds for one `repr`; pydevd warns about values that take 0.5 s."""
FULL_DEADLINE = 5.0
"""Deadline in seconds for a value that the user requested in full, in the Debug Console or for the clipboard."""
MAX_LATE = 4
"""Maximum number of late calls that are still running; each occupies a thread."""
BUDGET = 1.2
"""Size of the budget in seconds of waiting. pydevd resumes the job's other threads after three seconds."""
LEAST = 0.01
"""Deadline in seconds for a `repr` when the budget is used up."""


_late: dict[type | tuple[type, str], Call] = {}


class _Budget:
    """Remaining seconds of waiting; refills as fast as time passes."""

    def __init__(self) -> None:
        self._left = BUDGET
        self._since = time.monotonic()

    def take(self, seconds: float) -> float:
        """Return how long a call may take now."""
        now = time.monotonic()
        self._left = min(BUDGET, self._left + now - self._since)
        self._since = now
        return min(seconds, max(LEAST, self._left))

    def spend(self, seconds: float) -> None:
        """Subtract the duration of a call; the time of the call itself does not refill the budget."""
        self._left -= seconds
        self._since = time.monotonic()


_budget = _Budget()


def within_deadline(
    kind: type | tuple[type, str], compute: Callable[[], T], *, seconds: float = REPR_DEADLINE, what: str = "repr"
) -> T | str:
    """Return what the job's code computes, normally a text, or `<Slow: ...>` if that takes too long.

    Args:
        kind: The type of the value, with the name of the attribute if it is not about the whole value.
        compute: Computes it; called in a helper thread.
        seconds: The deadline. A deadline above `REPR_DEADLINE` means that a single value was requested; such a call
            does not use the budget.
        what: What is computed.

    Raises:
        Exception: The exception that `compute` raised.
    """
    with _helpers.lock:
        for other in [other for other, call in _late.items() if not call.is_running]:
            del _late[other]
        if kind in _late:
            return f"<Slow: an earlier {what} of this type is still running>"
        if len(_late) >= MAX_LATE:
            return f"<Slow: {len(_late)} earlier calls are still running>"
        limit = seconds if seconds > REPR_DEADLINE else _budget.take(seconds)
    started = time.monotonic()
    try:
        return call_within(limit, compute)
    except TooLate as late:
        _late[kind] = late.call
        return f"<Slow: {what} takes longer than {limit:.2g} s>"
    except NotRead as error:
        return f"<{error}>"
    finally:
        if seconds <= REPR_DEADLINE:
            _budget.spend(time.monotonic() - started)

"""Calls with a deadline: a function that may never return runs in a helper thread and is abandoned at its deadline.

Python cannot interrupt a thread, so an abandoned call continues until it returns. Its thread is a daemon thread that
pydevd does not trace, stop or list. It has the context variables and torch's state of the thread that waits.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from relay_agent.gevent_originals import queue, threading
from relay_agent.values.torch_state import read_torch_state, taken_over

__all__ = ["Call", "TooLate", "call_within"]

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
    _Helper.available().start_call(call)
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
        self.is_running = True
        self.result: Any = None
        self.error: BaseException | None = None
        self._function: Callable[[], Any] | None = function
        self._context = contextvars.copy_context()
        self._torch_state = read_torch_state()

    def execute(self) -> None:
        """Call the function in this thread."""
        try:
            with taken_over(self._torch_state):
                self.result = self._context.run(self._function)  # type: ignore[arg-type] # set until it has returned
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting thread
            self.error = error
        self._function = self._torch_state = None  # an abandoned call must not keep the job's objects alive
        self.is_running = False
        self.finished.release()


class _Helper(threading.Thread):
    """A thread that executes one call at a time and is reused for later calls."""

    pydev_do_not_trace = True
    is_pydev_daemon_thread = True

    idle: ClassVar[list[_Helper]] = []
    """The idle helpers."""
    taking: ClassVar[threading.Lock] = threading.Lock()
    """Held while a helper is taken from the list, is put back, or exits."""

    def __init__(self) -> None:
        super().__init__(name="relay-agent values", daemon=True)
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()

    @classmethod
    def available(cls) -> _Helper:
        """Return an idle helper of this process, or a new one."""
        with cls.taking:
            if cls.idle:
                return cls.idle.pop()
        helper = cls()
        helper.start()
        return helper

    @classmethod
    def forget(cls) -> None:
        """Discard all helpers in a forked child, which does not have their threads.

        One of them may have held the lock.
        """
        cls.taking = threading.Lock()
        cls.idle.clear()

    def start_call(self, call: Call) -> None:
        """Execute a call as soon as possible."""
        self._calls.put(call)

    def run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_TIME)
            except queue.Empty:
                with self.taking:
                    if self not in self.idle:  # a call is about to arrive
                        continue
                    self.idle.remove(self)
                    return
            call.execute()
            del call
            with self.taking:
                self.idle.append(self)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Helper.forget)

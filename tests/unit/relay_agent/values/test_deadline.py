"""Facts about calls with a deadline."""

import contextvars
import os
import threading

import pytest

from relay_agent.values.deadline import TooLate, call_within
from tests.support.machine.deadline import DEADLINE

NUMBER = contextvars.ContextVar("NUMBER", default=1)


def test_result_and_error():
    """The result of a function is returned, and its exception is raised."""
    assert 3 == call_within(30, lambda: 3)
    with pytest.raises(ZeroDivisionError):
        call_within(30, lambda: 1 // 0)


def test_late_call_is_abandoned():
    """A late call is reported with the call, which ends on its own; others are served meanwhile."""
    may_end = threading.Event()
    with pytest.raises(TooLate) as raised:
        call_within(0.01, may_end.wait)
    call = raised.value.call
    assert call.is_running
    assert 4 == call_within(30, lambda: 4)
    may_end.set()
    assert call.finished.acquire(timeout=DEADLINE)
    assert not call.is_running


def test_thread_is_used_again():
    """Calls that are in time share one thread, which no debugger lists."""
    threads = {call_within(30, threading.current_thread) for _ in range(10)}
    assert 1 == len(threads)
    assert all(thread.is_pydev_daemon_thread and thread.pydev_do_not_trace for thread in threads)


def test_context_variables():
    """The function sees the context variables of its caller."""
    NUMBER.set(2)
    assert 2 == call_within(30, NUMBER.get)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_has_its_own_thread():
    """A forked child, which does not have its parent's threads, can call too."""
    call_within(30, lambda: None)
    child = os.fork()
    if not child:
        os._exit(7 if call_within(30, lambda: 5) == 5 else 1)
    assert 7 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

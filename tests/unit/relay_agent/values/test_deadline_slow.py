"""Facts about the limits of slow texts."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from relay_agent.values import deadline
from relay_agent.values.deadline import BUDGET, MAX_LATE, REPR_DEADLINE, within_deadline
from tests.support.machine.deadline import DEADLINE


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has the whole budget, and nothing late from before."""
    monkeypatch.setattr(deadline, "_budget", deadline._Budget())
    deadline._late.clear()


@pytest.fixture
def forever() -> Iterator[threading.Event]:
    """An event that is set at the end of the test, for calls that are to be late."""
    event = threading.Event()
    yield event
    event.set()


def test_text_in_time():
    """A text that is in time is returned."""
    assert "text" == within_deadline(int, lambda: "text")


def test_late_text_is_named(forever: threading.Event):
    """A late text is replaced by a note, and others of its type are not started until it has returned."""
    assert "<Slow: repr takes longer than 0.4 s>" == within_deadline(int, lambda: str(forever.wait()))
    assert "<Slow: an earlier repr of this type is still running>" == within_deadline(int, lambda: "text")
    assert "text" == within_deadline(str, lambda: "text")
    call = deadline._late[int]
    forever.set()
    assert call.finished.acquire(timeout=DEADLINE)
    assert "text" == within_deadline(int, lambda: "text")


def test_threads_are_limited(forever: threading.Event):
    """Not more than a few calls are late at once."""
    kinds = [type(f"Kind{number}", (), {}) for number in range(MAX_LATE + 1)]
    texts = [within_deadline(kind, lambda: str(forever.wait())) for kind in kinds]
    assert f"<Slow: {MAX_LATE} earlier calls are still running>" == texts[-1]


def test_budget_of_many():
    """Many texts that are slow but in time share a budget: once it is used up, others are not waited for."""

    def compute() -> str:
        time.sleep(0.75 * REPR_DEADLINE)
        return "text"

    texts = [within_deadline(type(f"Kind{number}", (), {}), compute) for number in range(28)]
    assert 1 <= texts.count("text") <= 14  # the budget is enough for four, and refills between two calls
    assert texts[-1].startswith("<Slow: ")
    assert BUDGET > REPR_DEADLINE


def test_error_is_raised():
    """An exception of the job's code reaches the caller."""
    with pytest.raises(ZeroDivisionError):
        within_deadline(int, lambda: str(1 // 0))


FORK = """
import os, threading
from relay_agent.values.deadline import within_deadline
within_deadline(bytes, lambda: str(threading.Event().wait()))
child = os.fork()
if not child:
    os._exit(7 if within_deadline(bytes, lambda: "text") == "text" else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_child_has_nothing_late():
    """In a forked child, a call that is late in its parent does not keep values of that type from being shown."""
    assert 7 == subprocess.run([sys.executable, "-c", FORK], timeout=DEADLINE, check=False).returncode

"""Helper threads of `relay_agent.values`, which would stay for half a minute after a test."""

import threading
from collections.abc import Iterator

import pytest

from relay_agent.values import deadline
from tests.support.machine.deadline import DEADLINE

__all__ = ["no_thread_left"]


@pytest.fixture(autouse=True)
def no_thread_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Helper threads end soon after a test, which must leave none."""
    monkeypatch.setattr(deadline, "IDLE_TIME", 0.5)
    yield
    for thread in threading.enumerate():
        if thread.name == "relay-agent values":
            thread.join(DEADLINE)

"""Facts about the stops that an agent announces."""

import asyncio
from typing import Any

import pytest

from relay_agent.agent import attachments
from relay_agent.agent.attachments import Attachments, Stops
from relay_agent.agent.port_targets import PortTarget
from relay_core.layers.stop_observer import ObservedStop, Place
from tests.support.machine.deadline import DEADLINE


def test_a_process_is_stopped_since_its_first_report() -> None:
    """Further reports of a stop change its place, not its start; a process that resumes is running."""
    stops, stream = Stops(), object()
    assert (False, None) == _state(stops)
    stops.set(stream, ObservedStop("step", 1))
    before = stops.attachment("ann@a", 1.0)
    stops.set(stream, ObservedStop("step", 1, Place(r"C:\src\train.py", 41)))
    after = stops.attachment("ann@a", 1.0)
    assert ("", "train.py:41") == (before.stopped_at, after.stopped_at)
    assert before.stopped_since == after.stopped_since
    stops.set(stream, None)
    is_stopped, resumed_since = _state(stops)
    assert not is_stopped
    assert resumed_since is not None


def test_the_latest_of_several_stops_counts() -> None:
    """The stop of another stream remains when the latest one resumes."""
    stops = Stops()
    stops.set("parent", ObservedStop("breakpoint", 1, Place("/a/train.py", 1)))
    stops.set("child", ObservedStop("breakpoint", 1, Place("/a/data.py", 2)))
    assert "data.py:2" == stops.attachment("ann@a", 1.0).stopped_at
    stops.set("child", None)
    assert "train.py:1" == stops.attachment("ann@a", 1.0).stopped_at


def test_the_exception_of_a_stop() -> None:
    """An uncaught exception is part of the attachment while the process is stopped at it."""
    stops = Stops()
    stops.set("stream", ObservedStop("exception", 1, uncaught="ValueError: no"))
    assert "ValueError: no" == stops.attachment("ann@a", 1.0).uncaught
    stops.set("stream", None)
    assert "" == stops.attachment("ann@a", 1.0).uncaught


async def test_changes_in_a_quick_sequence_are_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The announcement follows the last change, and a later change is announced again."""
    monkeypatch.setattr(attachments, "ANNOUNCE_DELAY", 0.05)
    announced: asyncio.Queue[float] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    holders = Attachments(lambda: announced.put_nowait(loop.time()))
    driver: Any = object()
    async with holders.holding(PortTarget(5678, 5678), driver, "ann@a") as stream:
        announced.get_nowait()  # that the target is held
        for _ in range(2):
            for stop in (ObservedStop("step", 1), None, ObservedStop("step", 1)):
                last = loop.time()
                stream.stopped(stop)
            assert await asyncio.wait_for(announced.get(), DEADLINE) >= last + attachments.ANNOUNCE_DELAY
            assert announced.empty()


def _state(stops: Stops) -> tuple[bool, float | None]:
    attachment = stops.attachment("ann@a", 1.0)
    return attachment.is_stopped, attachment.resumed_since

"""Facts about the timer that follows the deadlines of a sans-IO machine."""

import asyncio

import pytest

from relay_core.net.tasks import SOON, DeadlineTimer
from relay_core.program import run
from tests.support.machine.deadline import DEADLINE


async def test_earliest_deadline_counts() -> None:
    """An earlier deadline replaces the timer; a later one, and None, leave it as it is."""
    timer, now = DeadlineTimer(lambda: None), asyncio.get_running_loop().time()
    seen = []
    for deadline in (None, now + 50, now + 20, now + 90, None):
        timer.set(deadline)
        seen.append(timer._handle and timer._due)
    timer.cancel()
    assert [None, now + 50, now + 20, now + 20, now + 20] == seen


async def test_cancelled_deadline_is_forgotten() -> None:
    """A cancelled deadline is not kept and causes no call, and another one may be set later."""
    loop, calls = asyncio.get_running_loop(), []
    timer = DeadlineTimer(lambda: calls.append("called"))
    timer.set(loop.time())
    timer.cancel()
    passed = asyncio.Event()
    loop.call_at(loop.time() + 0.01, passed.set)
    await passed.wait()
    assert (None, []) == (timer._handle, calls)


async def test_it_can_be_set_again_in_the_call() -> None:
    """A machine that sets its next deadline when it is called is called again."""
    loop, done, calls = asyncio.get_running_loop(), asyncio.Event(), []

    def call() -> None:
        calls.append(timer._handle)
        if len(calls) < 3:
            timer.set(loop.time())
        else:
            done.set()

    timer = DeadlineTimer(call)
    timer.set(loop.time())
    await asyncio.wait_for(done.wait(), DEADLINE)
    assert [None] * 3 == calls


async def test_soon() -> None:
    """Requests of one iteration of the event loop are one call in the next one; then there can be another."""
    calls: list[str] = []
    timer = DeadlineTimer(lambda: calls.append("called"))
    for number in range(1, 3):
        timer.set(SOON)
        timer.set(SOON)
        assert number - 1 == len(calls)
        for _ in range(2):  # in the next iteration, and at the beginning of the one after it
            await asyncio.sleep(0)
        assert number == len(calls)
        for _ in range(3):
            await asyncio.sleep(0)
        assert number == len(calls)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_deadline_that_has_passed(loop, monkeypatch):
    """A deadline that has passed already can be followed by another one before the call, in both event loops."""
    pytest.importorskip(loop, reason=f"{loop} is not installed")
    monkeypatch.setenv(run.VARIABLE, loop)

    async def main() -> None:
        called = asyncio.Event()
        timer = DeadlineTimer(called.set)
        now = asyncio.get_running_loop().time()
        timer.set(now - 1)
        timer.set(now + 3600)
        await asyncio.wait_for(called.wait(), DEADLINE)

    run.run(main())

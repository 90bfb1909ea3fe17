"""Facts about the place where tasks are started."""

import asyncio

import pytest

from relay_core.net.tasks import TaskSet, run_together


async def crash() -> None:
    raise ValueError("boom")


async def test_a_crash_is_logged_and_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A task that raises is logged with its name; its siblings go on."""
    async with TaskSet() as tasks:
        sibling = tasks.spawn(asyncio.sleep(0.05, "fine"), name="sibling")
        crashed = tasks.spawn(crash(), name="the one that crashes")
        await asyncio.wait({crashed})
        assert await sibling == "fine"
    assert "task the one that crashes crashed" in caplog.text


async def test_leaving_ends_what_still_runs() -> None:
    """No task outlives its set."""
    async with TaskSet() as tasks:
        forever = tasks.spawn(asyncio.Event().wait(), name="forever")
        assert "<TaskSet ['forever']>" == repr(tasks)
    assert forever.cancelled()
    assert 0 == len(tasks)


async def test_run_together_raises_the_first_error_and_cancels_the_rest() -> None:
    """An error in one coroutine ends the others."""
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(ValueError, match="boom"):
        await run_together(wait(), crash())
    assert cancelled.is_set()


async def test_run_together_ends_when_all_are_done() -> None:
    """Without errors all coroutines run to their end."""
    done: list[int] = []

    async def finish(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    await run_together(finish(1), finish(2))
    assert [1, 2] == done

"""Facts about starting and cancelling tasks."""

import asyncio

import pytest

from relay_core.errors import ConnectionLost
from relay_core.net.tasks import TaskSet, first_completed, first_success, run_together


async def crash() -> None:
    raise ValueError("boom")


async def test_a_crash_is_logged_and_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A task that raises is logged with its name; its siblings continue."""
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
        assert [forever] == list(tasks._tasks)
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


async def never(ended: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()


async def result(value: str) -> str:
    return value


async def test_the_first_result_is_returned_and_the_other_coroutines_end() -> None:
    """A race returns the result of what is done first; what it started beside it is cancelled."""
    ended = asyncio.Event()
    assert "won" == await first_completed(never(ended), result("won"))
    assert ended.is_set()


async def test_the_first_error_is_raised_and_the_other_coroutines_end() -> None:
    """A race raises the error of what is done first; what it started beside it is cancelled."""
    ended = asyncio.Event()
    with pytest.raises(ValueError, match="boom"):
        await first_completed(never(ended), crash())
    assert ended.is_set()


async def test_the_order_of_the_arguments_decides_a_dead_heat(caplog: pytest.LogCaptureFixture) -> None:
    """If both end at once, the result of the first argument is returned; an error of the other one is logged."""
    assert "won" == await first_completed(result("won"), crash())
    assert "task crash crashed" in caplog.text


async def test_an_expected_error_beside_the_cancellation_of_a_race(caplog: pytest.LogCaptureFixture) -> None:
    """If a contender ends with a documented error as its race is cancelled, that is not logged as a crash."""

    async def lose() -> None:
        raise ConnectionLost("the tunnel session has ended")

    race = asyncio.get_running_loop().create_task(first_completed(lose()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    race.cancel()
    with pytest.raises(asyncio.CancelledError):
        await race
    assert "has ended as well: the tunnel session has ended" in caplog.text
    assert "crashed" not in caplog.text


async def test_a_task_of_the_caller_outlives_the_race() -> None:
    """Only what the race started is cancelled; a task that was passed keeps running."""
    async with TaskSet() as tasks:
        sibling = tasks.spawn(asyncio.Event().wait(), name="sibling")
        assert "won" == await first_completed(sibling, result("won"))
        assert not sibling.done()


async def test_a_race_that_nobody_wins() -> None:
    """When the time is over, None is returned and what was started has ended."""
    ended = asyncio.Event()
    assert await first_completed(never(ended), timeout=0.01) is None
    assert ended.is_set()


async def test_a_cancelled_race_ends_what_it_started() -> None:
    """Cancelling who waits for a race cancels the coroutines in it."""
    ended = asyncio.Event()
    race = asyncio.get_running_loop().create_task(first_completed(never(ended)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    race.cancel()
    with pytest.raises(asyncio.CancelledError):
        await race
    assert ended.is_set()


@pytest.mark.parametrize("ends", ["beside the winner", "as the race is cancelled"])
async def test_a_result_that_nobody_gets_is_discarded(ends: str) -> None:
    """A coroutine that succeeds without being the winner has its result discarded."""
    loop, discarded = asyncio.get_running_loop(), list[object]()
    opened = loop.create_future()

    async def opening() -> object:
        return await opened

    first = [result("won")] if ends == "beside the winner" else []
    race = loop.create_task(first_completed(*first, opening(), never(asyncio.Event()), discard=discarded.append))
    await asyncio.sleep(0)
    opened.set_result("stream")
    await asyncio.sleep(0)
    if not first:
        race.cancel()
    await asyncio.wait({race})
    assert ["stream"] == discarded
    assert (not first) is race.cancelled()


class Attempts:
    """Attempts that end when the test decides, each with a result or an error."""

    def __init__(self, *, may_repeat: bool = True) -> None:
        self.futures: list[asyncio.Future[str]] = []
        self.discarded: list[str] = []
        self._may_repeat = may_repeat
        self._started = asyncio.Event()

    def run(self, again_after: list[float]) -> asyncio.Task[str]:
        """Start the first attempt."""
        attempt = first_success(
            self._attempt,
            again_after=again_after,
            may_repeat=lambda: self._may_repeat,
            is_final=lambda error: isinstance(error, PermissionError),
            discard=self.discarded.append,
        )
        return asyncio.get_running_loop().create_task(attempt)

    async def started(self, number: int) -> None:
        """Return when so many attempts have been started."""
        while len(self.futures) < number:
            self._started.clear()
            await self._started.wait()

    async def _attempt(self) -> str:
        self.futures.append(asyncio.get_running_loop().create_future())
        self._started.set()
        return await self.futures[-1]


@pytest.mark.parametrize("winner", [0, 1, 2])
async def test_any_of_several_attempts_may_succeed(winner: int) -> None:
    """An attempt that has not ended in time is repeated beside it; one result is used, and the others are cancelled."""
    attempts = Attempts()
    task = attempts.run([0, 0])
    await attempts.started(3)
    attempts.futures[winner].set_result("open")
    assert "open" == await task
    assert [number != winner for number in range(3)] == [future.cancelled() for future in attempts.futures]


async def test_an_attempt_that_ends_in_time_is_not_repeated() -> None:
    """Without a delay, and without permission, there is one attempt."""
    for attempts, delays in ((Attempts(), []), (Attempts(may_repeat=False), [0, 0])):
        task = attempts.run(delays)
        await attempts.started(1)
        attempts.futures[0].set_result("open")
        assert "open" == await task
        assert 1 == len(attempts.futures)


async def test_an_attempt_that_fails_leaves_the_others() -> None:
    """An error counts only if no attempt is left; the last one is raised."""
    attempts = Attempts()
    task = attempts.run([0])
    await attempts.started(2)
    attempts.futures[0].set_exception(OSError("first"))
    await asyncio.wait({task}, timeout=0.01)
    attempts.futures[1].set_exception(OSError("second"))
    with pytest.raises(OSError, match="second"):
        await task


async def test_a_final_error_ends_all_attempts() -> None:
    """An error that a repetition cannot change is raised at once."""
    attempts = Attempts()
    task = attempts.run([0])
    await attempts.started(2)
    attempts.futures[1].set_exception(PermissionError("refused"))
    with pytest.raises(PermissionError, match="refused"):
        await task
    assert attempts.futures[0].cancelled()


async def test_a_second_success_is_discarded() -> None:
    """Of two attempts that succeed at the same moment, one result is returned, and the other one discarded."""
    attempts = Attempts()
    task = attempts.run([0])
    await attempts.started(2)
    for number, future in enumerate(attempts.futures):
        future.set_result(str(number))
    assert {"0", "1"} == {await task, *attempts.discarded}


async def test_a_cancelled_attempt_cancels_all() -> None:
    """Who is cancelled leaves no attempt behind."""
    attempts = Attempts()
    task = attempts.run([0])
    await attempts.started(2)
    task.cancel()
    await asyncio.wait({task})
    assert all(future.cancelled() for future in attempts.futures)


async def test_a_success_is_discarded_if_its_owner_is_cancelled() -> None:
    """Who is cancelled while the other attempts end does not get the result, which is not lost."""
    discarded: list[str] = []
    may_end = asyncio.Event()
    starts = iter(("slow to end", "open"))

    async def attempt() -> str:
        name = next(starts)
        if name == "open":
            return name
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
        return name

    racing = first_success(
        attempt, again_after=[0], may_repeat=lambda: True, is_final=lambda _error: False, discard=discarded.append
    )
    task = asyncio.get_running_loop().create_task(racing)
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    may_end.set()
    await asyncio.wait({task})
    assert task.cancelled()
    assert ["open"] == discarded

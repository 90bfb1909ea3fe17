"""Facts about calls that follow each other quickly, and how many of them are made."""

import asyncio

import pytest

from relay_agent.agent import joined_calls
from relay_agent.agent.joined_calls import JoinedCalls
from relay_core.compat import timeout
from tests.support.deadline import DEADLINE


class Changing:
    """A value that changes, and what was known of it at each call."""

    def __init__(self) -> None:
        self.value = 0
        self.seen: list[int] = []
        self.calls = JoinedCalls(lambda: self.seen.append(self.value))

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            self.value += 1
            self.calls.request()


@pytest.fixture
def long_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval that ends after the test."""
    monkeypatch.setattr(joined_calls, "INTERVAL", 10 * DEADLINE)


async def test_the_first_request_is_not_delayed() -> None:
    """One change of a quiet time is announced at once."""
    changing = Changing()
    changing.change()
    assert [1] == changing.seen


async def test_what_follows_is_one_call_with_the_last_state() -> None:
    """A thousand requests are two calls, and the second one sees all changes."""
    changing = Changing()
    changing.change(1000)
    assert [1] == changing.seen
    async with timeout(DEADLINE):
        await changing.calls.until_called()
    assert [1, 1000] == changing.seen


async def test_a_request_of_the_call_itself_is_not_lost() -> None:
    """A change that the call causes is announced by the next one."""
    changing = Changing()
    again = iter([True])
    joined = JoinedCalls(lambda: (changing.seen.append(0), next(again, False) and joined.request())[0])
    joined.request()
    async with timeout(DEADLINE):
        while len(changing.seen) < 2:
            await asyncio.sleep(0)
            await joined.until_called()


@pytest.mark.usefixtures("long_interval")
async def test_a_pending_call_is_made_on_request_and_once() -> None:
    """Before the goodbye, the last state is sent without waiting; without a change, nothing is sent again."""
    changing = Changing()
    changing.change(3)
    changing.calls.flush()
    changing.calls.flush()
    assert [1, 3] == changing.seen
    await changing.calls.until_called()


@pytest.mark.usefixtures("long_interval")
async def test_waiting_ends_with_the_call() -> None:
    """Whoever waits for the pending call continues once it is made, by whatever."""
    changing = Changing()
    changing.change(2)
    assert changing.calls._timer is not None
    waiting = asyncio.create_task(changing.calls.until_called())
    await asyncio.sleep(0)
    assert not waiting.done()
    changing.calls.flush()
    async with timeout(DEADLINE):
        await waiting

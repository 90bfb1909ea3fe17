"""Facts about calls that follow each other quickly, and how many of them are made."""

import asyncio
import time

from relay_core.compat import timeout
from relay_core.net.tasks import Paced
from tests.support.machine.deadline import DEADLINE


class Changing:
    """A value that changes, and what was known of it at each call."""

    def __init__(self, interval: float = 0.1) -> None:
        self.value = 0
        self.seen: list[int] = []
        self.calls = Paced(lambda: self.seen.append(self.value), interval)

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            self.value += 1
            self.calls.request()


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
    joined = Paced(lambda: (changing.seen.append(0), next(again, False) and joined.request())[0], 0.01)
    joined.request()
    async with timeout(DEADLINE):
        await joined.until_called()
    assert [0, 0] == changing.seen


async def test_a_pending_call_is_made_on_request_and_once() -> None:
    """Before the goodbye, the last state is sent without waiting; without a change, nothing is sent again."""
    changing = Changing(10 * DEADLINE)
    changing.change(3)
    changing.calls.flush()
    changing.calls.flush()
    assert [1, 3] == changing.seen
    await changing.calls.until_called()


async def test_waiting_ends_with_the_call() -> None:
    """Whoever waits for the pending call continues once it is made, by whatever."""
    changing = Changing(10 * DEADLINE)
    changing.change(2)
    assert changing.calls._timer is not None
    waiting = asyncio.create_task(changing.calls.until_called())
    await asyncio.sleep(0)
    assert not waiting.done()
    changing.calls.flush()
    async with timeout(DEADLINE):
        await waiting


async def test_paced_calls() -> None:
    """After a pause, some calls are made at once; further requests are joined to one call, which is later."""
    calls: list[int] = []
    requests = 0
    joined = asyncio.Event()

    def call() -> None:
        calls.append(requests)
        if requests == 1000:
            joined.set()

    paced = Paced(call, interval=0.01, burst=0.1)
    started = time.monotonic()
    while requests < 1000:
        requests += 1
        paced.request()
    assert 1 <= len(calls) <= 12 + 100 * (time.monotonic() - started)
    assert [1, 2] == calls[:2]
    await asyncio.wait_for(joined.wait(), DEADLINE)
    paced.flush()
    assert 1 == calls.count(1000)


async def test_paced_calls_that_take_long() -> None:
    """Who requests calls that take long gets fewer of them."""
    calls: list[float] = []

    def call() -> None:
        calls.append(time.monotonic())
        while time.monotonic() < calls[-1] + 0.02:
            pass

    paced = Paced(call, interval=0.001, burst=0.0)
    for _ in range(100):
        paced.request()
    assert 1 == len(calls)
    paced.flush()
    assert 2 == len(calls)

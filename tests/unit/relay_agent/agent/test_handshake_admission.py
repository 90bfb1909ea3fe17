"""Facts about the places for handshakes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from relay_agent.agent import handshake_admission
from relay_agent.agent.handshake_admission import BUSY_TIMEOUT, MAX_HANDSHAKES, Admission
from relay_core.errors import ConnectionLost
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def places() -> Admission:
    return Admission()


@pytest_asyncio.fixture
async def taken(places: Admission) -> AsyncIterator[AsyncExitStack]:
    """All places; closing the stack gives them back, the last one first."""
    async with AsyncExitStack() as stack:
        for _ in range(MAX_HANDSHAKES):
            await stack.enter_async_context(places.place())
        yield stack


async def test_number_of_handshakes(places: Admission, taken: AsyncExitStack) -> None:
    """An agent serves 32 senders at a time: 13 MiB and 32 descriptors, a small part of the 1024 of a usual limit."""
    assert 32 == MAX_HANDSHAKES
    assert (0, 0) == (places._free, len(places._waiting))


def wait_for(places: Admission, name: str, served: list[str]) -> asyncio.Task[None]:
    async def wait() -> None:
        async with places.place():
            served.append(name)

    return asyncio.ensure_future(wait())


async def test_the_newest_is_served_first(places: Admission, taken: AsyncExitStack) -> None:
    """Nobody is served beyond the limit; when places are free again, the newest offer is first."""
    served: list[str] = []
    waiting = []
    for name in ("old", "newer", "newest"):
        waiting.append(wait_for(places, name, served))
        await settle()
    assert [] == served
    await taken.aclose()
    await asyncio.gather(*waiting)
    assert ["newest", "newer", "old"] == served
    assert (MAX_HANDSHAKES, 0) == (places._free, len(places._waiting))


async def test_the_oldest_is_dropped(places: Admission, taken: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offers that wait are limited in number: the oldest is dropped for a new one."""
    monkeypatch.setattr(handshake_admission, "MAX_WAITING", 2)
    served: list[str] = []
    waiting = [wait_for(places, name, served) for name in ("old", "newer", "newest")]
    with pytest.raises(ConnectionLost, match="too many clients were connecting"):
        await waiting[0]
    await taken.aclose()
    await asyncio.gather(*waiting[1:])
    assert ["newest", "newer"] == served


async def test_the_oldest_has_just_left(
    places: Admission, taken: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new offer waits as usual if the oldest, which makes room for it, was cancelled in the same moment."""
    monkeypatch.setattr(handshake_admission, "MAX_WAITING", 1)
    served: list[str] = []
    oldest = wait_for(places, "oldest", served)
    await settle()
    newest = wait_for(places, "newest", served)  # runs before the task that is cancelled now
    oldest.cancel()
    with pytest.raises(asyncio.CancelledError):
        await oldest
    await taken.aclose()
    await newest
    assert ["newest"] == served
    assert (MAX_HANDSHAKES, 0) == (places._free, len(places._waiting))


async def test_nobody_waits_longer_than_the_relay(
    places: Admission,
    taken: AsyncExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An offer that has waited as long as the relay keeps it is dropped."""
    monkeypatch.setattr(handshake_admission, "MAX_WAIT", 0.01)
    with pytest.raises(ConnectionLost, match="too many clients were connecting"):
        await wait_for(places, "late", [])
    assert (0, 0) == (places._free, len(places._waiting))


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancelled_wait_loses_no_place(places: Admission, taken: AsyncExitStack, turns: int) -> None:
    """Whenever somebody who waits is cancelled, all places are free in the end."""
    waiting = wait_for(places, "cancelled", [])
    await settle()
    releasing = asyncio.ensure_future(taken.aclose())
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    await releasing
    await asyncio.wait({waiting})
    assert (MAX_HANDSHAKES, 0) == (places._free, len(places._waiting))


async def test_handshakes_have_less_time_while_others_wait(places: Admission, taken: AsyncExitStack) -> None:
    """While an offer waits for a place, handshakes that begin have a shorter time limit."""
    before = places.time_limit
    waiting = wait_for(places, "next", [])
    await settle()
    assert (HANDSHAKE_TIMEOUT, BUSY_TIMEOUT) == (before, places.time_limit)
    await taken.aclose()
    await waiting
    assert HANDSHAKE_TIMEOUT == places.time_limit

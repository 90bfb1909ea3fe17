"""Waiting for a fact instead of for a while."""

import asyncio
from collections.abc import Callable

from tests.support.machine.deadline import DEADLINE

STEP = 0.005


async def eventually(fact: Callable[[], bool]) -> None:
    """Return as soon as `fact()` holds; fail if it does not within the limit."""
    deadline = asyncio.get_running_loop().time() + DEADLINE
    while not fact():
        assert asyncio.get_running_loop().time() < deadline, "the fact never came true"
        await asyncio.sleep(STEP)

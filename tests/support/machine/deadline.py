"""The only time limit of the tests: how long a test waits for something that must happen.

A deadline ends a hang; it never judges speed, so it is generous and grows with what the machine is doing. A test that
needs to know that something does *not* happen waits for a short time of its own, and a benchmark measures speed.
`timeout` in pyproject.toml is longer than several of these: it ends what no deadline has ended.
"""

import asyncio
import os
from collections.abc import Callable

__all__ = ["DEADLINE", "until"]

IDLE = 90.0
"""Seconds on an idle machine; the slowest step, a job whose ranks import torch, takes about 20 s there."""


def _crowding() -> float:
    """Return how many processes share a core: the workers of this run, and what the machine was running before it."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has none
        load = 0.0
    return (workers + load) / (os.cpu_count() or 1)


DEADLINE = IDLE * max(1.0, _crowding())
"""Seconds until a test stops waiting; the same for the whole run of a worker."""


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that other tasks or processes do."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE
    while not condition():
        assert loop.time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)

"""Waiting for agents and targets: all who wait share one look around, and are woken by every change."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from relay_client.agents.discovery import Discovery, Patience
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import TaskSet, first_completed

__all__ = ["CASUAL", "RETRY_DELAYS", "THOROUGH", "Seeker"]

RETRY_DELAYS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""Seconds between looks for an agent while somebody waits for one; the last one repeats."""
LOOK_INTERVAL = 30.0
"""Seconds between looks while nobody waits, give or take a fifth: many clients must not come in step."""
THOROUGH = Patience(8)
"""While somebody waits; see relay_client.agents.discovery."""
CASUAL = Patience(1)
"""While nobody does: there is a next time."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Seeker:
    """Looks for agents on behalf of those who wait for something that only an agent can bring.

    Args:
        discovery: Finds agents.
        tasks: Keeps the look that is going on.
    """

    def __init__(self, discovery: Discovery, tasks: TaskSet) -> None:
        self._discovery = discovery
        self._tasks = tasks
        self._look: asyncio.Task[RelayDebugError | None] | None = None
        self._demands: list[_Demand] = []
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Seeker {self._discovery!r} waiting={len(self._demands)}>"

    @property
    def changed(self) -> asyncio.Event:
        """Is set at the next change: an agent came, left, was lost, is back or said something."""
        return self._changed

    def announce_change(self) -> None:
        """Wake all who wait; they see for themselves whether it concerns them."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def seek(self, found: Callable[[], T | None], patience: Patience = THOROUGH) -> T:
        """Return what `found` returns, looking for agents until that is something.

        Raises:
            NoListener: there are no more agents.
            RelayDebugError: any other reason why looking ended.
        """
        demand = _Demand(found, patience)
        self._demands.append(demand)
        try:
            while (result := found()) is None:
                look = self._join_look()
                await first_completed(look, self.changed.wait())
                if look.done() and found() is None and (error := look.result()) is not None:
                    raise error
            return result
        finally:
            self._demands.remove(demand)

    async def until(self, found: Callable[[], T | None], on_waiting: Callable[[RelayDebugError], None]) -> T:
        """Return what `found` returns, however long it takes to be something.

        Args:
            found: Returns it, or None.
            on_waiting: Called with each new reason why it is not there.

        Raises:
            RelayDebugError: waiting cannot help.
        """
        told = ""
        for delay in itertools.chain(RETRY_DELAYS, itertools.repeat(RETRY_DELAYS[-1])):
            try:
                return await self.seek(found)
            except RelayDebugError as error:
                if not error.retryable:
                    raise
                if str(error) != told:
                    on_waiting(error)
                    told = str(error)
            if (result := found()) is not None:
                return result
            with contextlib.suppress(*TIMEOUT_ERRORS):
                async with timeout(delay):
                    await self.changed.wait()
        raise AssertionError("unreachable")

    async def keep_looking(self) -> NoReturn:
        """Look for all agents now, and for others now and then, for ever."""
        patience = THOROUGH
        while True:
            try:
                await self.seek(lambda: None, patience)
            except RelayDebugError as error:
                logger.debug("looked for agents: %s", error)
            patience = CASUAL
            await asyncio.sleep(LOOK_INTERVAL * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load

    def _join_look(self) -> asyncio.Task[RelayDebugError | None]:
        if self._look is None or self._look.done():
            self._look = self._tasks.spawn(self._discovery.look(self._wanted), name="look for agents")
        return self._look

    def _wanted(self) -> Patience | None:
        """Return how patiently agents are wanted now, or None."""
        wanted = [demand.patience for demand in self._demands if demand.found() is None]
        return max(wanted, key=lambda patience: patience.rounds, default=None)


@dataclass(eq=False)
class _Demand:
    """Somebody looks for something."""

    found: Callable[[], object]
    patience: Patience

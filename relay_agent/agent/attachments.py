"""Who is connected to which target: a debugger takes all of it, so a second user is told who has it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from relay_agent.agent.targets import Target
from relay_core.agent_api.announcement import Attachment
from relay_core.errors import ConnectionLost
from relay_core.net.session.driver import SessionDriver

__all__ = ["Holders"]


@dataclass
class _Holder:
    driver: SessionDriver
    user: str
    since: float = field(default_factory=time.time)
    streams: int = 0
    """A debugger of a process with children has several."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sentence(self) -> str:
        """Who and since when."""
        return f"held by {self.user} since {time.strftime('%H:%M', time.localtime(self.since))}"


class Holders:
    """The holders of an agent's targets.

    Args:
        on_change: Called when a target was taken or became free.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._holders: dict[Target, _Holder] = {}

    def __repr__(self) -> str:
        return f"<Holders {sorted(target.logical_port for target in self._holders)}>"

    def refusal(self, target: Target, driver: SessionDriver, user: str) -> str:
        """Return who else has a debuggee, as a sentence; "" if nobody does, or if it can be shared.

        A client that died without a goodbye would be kept for as long as one that only lost its network: when the same
        user comes with a new one, the old one is let go.
        """
        holder = self._holders.get(target)
        if holder is None or holder.driver is driver or not target.dap_only:
            return ""
        if holder.user == user and not holder.driver.session.attached:
            holder.driver.abort("its user came back with another client")
            return ""
        return holder.sentence

    @contextlib.asynccontextmanager
    async def holding(self, target: Target, driver: SessionDriver, user: str) -> AsyncIterator[None]:
        """Hold a target for a block; what a client that was let go still has of it ends first.

        Raises:
            ConnectionLost: another client was faster.
        """
        holder = await self._take(target, driver, user)
        holder.streams += 1
        try:
            yield
        finally:
            holder.streams -= 1
            if not holder.streams:
                del self._holders[target]
                holder.gone.set()
                target.detached()
                self._on_change()

    async def _take(self, target: Target, driver: SessionDriver, user: str) -> _Holder:
        while holder := self._holders.get(target):
            if holder.driver is driver or not target.dap_only:
                return holder
            if not holder.driver.over.is_set():
                raise ConnectionLost(holder.sentence)
            await holder.gone.wait()
        holder = self._holders[target] = _Holder(driver, user)
        self._on_change()
        return holder

    async def until_free(self, target: Target) -> None:
        """Wait until nobody holds a target."""
        if holder := self._holders.get(target):
            await holder.gone.wait()

    def attachment(self, target: Target) -> Attachment | None:
        """Return whose debugger is attached to a debuggee; None if none is, and for ports that are shared."""
        holder = self._holders.get(target)
        return None if holder is None or not target.dap_only else Attachment(holder.user, holder.since)

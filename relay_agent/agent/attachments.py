"""Table of attachments, that is, which client is connected to which target.

A debug target accepts one client at a time.
"""

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

__all__ = ["Attachments"]

ACK_INTERVAL = 0.01
"""Seconds between checks of whether a client has received everything."""


@dataclass
class _Holder:
    driver: SessionDriver
    user: str
    since: float = field(default_factory=time.time)
    streams: int = 0
    """Open streams; a debugger of a process with children has several."""
    running: set[object] = field(default_factory=set)
    """A token for each stream whose debug session has not ended."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `running` has changed."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sentence(self) -> str:
        """The reason for refusing other clients, with user and time."""
        return f"held by {self.user} since {time.strftime('%H:%M', time.localtime(self.since))}"


class Attachments:
    """The clients that hold the targets of an agent.

    Args:
        on_change: Called when a target gets a holder or becomes free.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._holders: dict[Target, _Holder] = {}

    def __repr__(self) -> str:
        return f"<Attachments {sorted(target.logical_port for target in self._holders)}>"

    def refusal(self, target: Target, driver: SessionDriver, user: str) -> str:
        """Return why a client must not connect to a target: another one holds it; "" if it may connect.

        The agent cannot distinguish a client that was killed from one that lost its network, and keeps the session of
        both. So if the same user connects with a new client while the old one has no transport, the old session is
        aborted.
        """
        holder = self._holders.get(target)
        if holder is None or holder.driver is driver or not target.dap_only:
            return ""
        if holder.user == user and not holder.driver.session.attached:
            holder.driver.abort("its user reconnected with another client")
            return ""
        return holder.sentence

    @contextlib.asynccontextmanager
    async def holding(self, target: Target, driver: SessionDriver, user: str) -> AsyncIterator[Callable[[], None]]:
        """Hold a target for the duration of a block; the streams of an aborted session are closed first.

        Yields:
            A function to call when the debug session has ended and its last bytes were passed to the tunnel session.

        Raises:
            ConnectionLost: another client has taken the target.
        """
        holder = await self._acquire(target, driver, user)
        holder.streams += 1
        token = object()
        holder.running.add(token)

        def debugger_ended() -> None:
            holder.running.discard(token)
            holder.changed.set()

        try:
            if holder.streams == 1:
                self._on_change()
            yield debugger_ended
        finally:
            holder.streams -= 1
            debugger_ended()
            if not holder.streams:
                del self._holders[target]
                holder.gone.set()
                target.detached()
                self._on_change()

    async def _acquire(self, target: Target, driver: SessionDriver, user: str) -> _Holder:
        while holder := self._holders.get(target):
            if holder.driver is driver or not target.dap_only:
                return holder
            if not holder.driver.over.is_set():
                raise ConnectionLost(holder.sentence)
            await holder.gone.wait()
        holder = self._holders[target] = _Holder(driver, user)
        return holder

    async def until_ended(self, target: Target) -> None:
        """Wait until the debug sessions of a target have ended and their client has received everything."""
        holder = self._holders.get(target)
        while holder is not None and holder.running:
            holder.changed.clear()
            await holder.changed.wait()
        while holder is not None and holder.driver.session.unacknowledged:  # noqa: ASYNC110 - at the end only
            await asyncio.sleep(ACK_INTERVAL)

    def attachment(self, target: Target) -> Attachment | None:
        """Return the attachment of a debug target; None if the target is free or shared by clients."""
        holder = self._holders.get(target)
        return None if holder is None or not target.dap_only else Attachment(holder.user, holder.since)

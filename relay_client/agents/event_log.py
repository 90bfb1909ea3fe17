"""Keeps the roster up to date and tells the user what happens: agents, targets, tunnels, conflicts, one line each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NoReturn

from relay_client.agents.events import conflict_text, held_texts, news_of
from relay_client.agents.roster import Conflict, Roster
from relay_core.agent_api.announcement import AgentId, AgentInfo
from relay_core.net.session.client import LinkState, LinkStatus

__all__ = ["Bulletin"]

HELD_INTERVAL = 300.0
"""Seconds between reminders of who holds what: a paused job costs money."""

logger = logging.getLogger(__name__)


class Bulletin:
    """What is known about the agents, and what of it the user has been told.

    Args:
        alarm: Called when somebody should come now, e.g. because a process is held at an exception.
    """

    def __init__(self, alarm: Callable[[], None]) -> None:
        self.roster = Roster()
        self._alarm = alarm
        self._conflicts: set[object] = set()
        """Those that the user was told about."""

    def __repr__(self) -> str:
        return f"<Bulletin {self.roster!r}>"

    def name(self, agent_id: AgentId) -> str:
        """Return how people know an agent."""
        agent = self.roster.agent(agent_id)
        return agent.name if agent else f"agent/{agent_id[:8]}"

    def announced(self, info: AgentInfo) -> None:
        """An agent has said something about itself."""
        now = time.time()
        for news in news_of(self.roster.put(info, now), info, now):
            logger.log(logging.WARNING if news.is_warning else logging.INFO, "%s", news.text)
            if news.is_alarm:
                self._alarm()

    def link_changed(self, agent_id: AgentId, status: LinkStatus) -> None:
        """The tunnel to an agent is in another state."""
        if status.state is LinkState.RECONNECTING:
            self.roster.lost(agent_id, time.time())
        elif status.state is LinkState.CONNECTED:
            self.roster.found(agent_id)
        name, held = self.name(agent_id), self._held(agent_id)
        if status.state is LinkState.CONNECTED:
            round_trip = f", round trip {status.round_trip * 1000:.1f} ms" if status.round_trip is not None else ""
            logger.info("tunnel to %s: connected%s%s", name, round_trip, held)
        elif status.state is LinkState.OVER:
            logger.warning("tunnel to %s: lost: %s", name, status.reason)
        else:
            since = time.strftime("%H:%M:%S", time.localtime(status.since))
            logger.warning("tunnel to %s: %s since %s: %s%s", name, status.state.value, since, status.reason, held)

    def conflicts(self) -> list[Conflict]:
        """Return the ports that are claimed twice now; the user is told about those that are new."""
        conflicts = self.roster.conflicts(time.time())
        for conflict in conflicts:
            if conflict.key not in self._conflicts:
                logger.warning("%s", conflict_text(conflict))
        self._conflicts = {conflict.key for conflict in conflicts}
        return conflicts

    async def keep_reminding(self) -> NoReturn:
        """Say now and then who holds what, for ever."""
        while True:
            await asyncio.sleep(HELD_INTERVAL)
            if held := held_texts(self.roster, time.time()):
                logger.info("%s", "; ".join(held))

    def _held(self, agent_id: AgentId) -> str:
        agent = self.roster.agent(agent_id)
        return "".join(f"; {text}" for text in held_texts([agent] if agent else [], time.time()))

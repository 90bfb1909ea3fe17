"""The log of agent events: maintains the roster and logs one line for each change to agents, tunnels and conflicts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NoReturn

from relay_client.agents.announcement_changes import agent_events, attachment_texts, conflict_text
from relay_client.agents.roster import Conflict, Roster
from relay_core.agent_api.announcement import AgentId, AgentInfo
from relay_core.net.session.client import LinkState, LinkStatus

__all__ = ["EventLog"]

REMINDER_INTERVAL = 300.0
"""Seconds between reminders about attached debuggers; users are reminded because a paused job costs money."""

logger = logging.getLogger(__name__)


class EventLog:
    """The roster of agents, and a record of what has been logged about it.

    Args:
        alarm: Called when the user should act now, for example because a process is held at an exception.
    """

    def __init__(self, alarm: Callable[[], None]) -> None:
        self.roster = Roster()
        self._alarm = alarm
        self._conflicts: set[object] = set()
        """Keys of the current conflicts, all of which have been logged."""

    def __repr__(self) -> str:
        return f"<EventLog {self.roster!r}>"

    def name(self, agent_id: AgentId) -> str:
        """Return the display name of an agent."""
        agent = self.roster.agent(agent_id)
        return agent.name if agent else f"agent/{agent_id[:8]}"

    def announced(self, info: AgentInfo) -> None:
        """Store an announcement in the roster and log what has changed."""
        now = time.time()
        before = self.roster.put(info, now)
        for event in agent_events(before, info, now, self.roster.former_targets(info.id)):
            logger.log(logging.WARNING if event.is_warning else logging.INFO, "%s", event.text)
            if event.is_alarm:
                self._alarm()

    def link_changed(self, agent_id: AgentId, status: LinkStatus) -> None:
        """Store and log the new state of the tunnel to an agent."""
        if status.state is LinkState.RECONNECTING:
            self.roster.lost(agent_id, time.time())
        elif status.state is LinkState.CONNECTED:
            self.roster.found(agent_id)
        name, attachments = self.name(agent_id), self._attachments(agent_id)
        if status.state is LinkState.CONNECTED:
            round_trip = f", round trip {status.round_trip * 1000:.1f} ms" if status.round_trip is not None else ""
            logger.info("tunnel to %s: connected%s%s", name, round_trip, attachments)
        elif status.state is LinkState.OVER:
            logger.warning("tunnel to %s: lost: %s", name, status.reason)
        else:
            since = time.strftime("%H:%M:%S", time.localtime(status.since))
            logger.warning(
                "tunnel to %s: %s since %s: %s%s", name, status.state.value, since, status.reason, attachments
            )

    def conflicts(self) -> list[Conflict]:
        """Return the current conflicts between claims, and log the new ones."""
        conflicts = self.roster.conflicts(time.time())
        for conflict in conflicts:
            if conflict.key not in self._conflicts:
                logger.warning("%s", conflict_text(conflict))
        self._conflicts = {conflict.key for conflict in conflicts}
        return conflicts

    async def remind_of_attachments(self) -> NoReturn:
        """Log at intervals which targets are held and by whom, until cancelled."""
        while True:
            await asyncio.sleep(REMINDER_INTERVAL)
            if texts := attachment_texts(self.roster, time.time()):
                logger.info("%s", "; ".join(texts))

    def _attachments(self, agent_id: AgentId) -> str:
        agent = self.roster.agent(agent_id)
        return "".join(f"; {text}" for text in attachment_texts([agent] if agent else [], time.time()))

"""The log of agent events: maintains the roster, and logs changes to agents, targets, tunnels and conflicts."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from relay_client.agents.roster import Conflict, Roster
from relay_client.ranks.changes import Event, node_changes
from relay_client.ranks.record import node_record, target_record
from relay_client.ranks.view import Kind, is_consequence, rank_view
from relay_client.ui.text import MINUTE, duration, format_ports, format_ranks
from relay_core.agent_api import VERSION
from relay_core.agent_api.announcement import AgentId, AgentInfo, State, TargetInfo, shared_labels
from relay_core.net.session.client import LinkState, LinkStatus
from relay_core.value_parsers import format_ranges

logger = logging.getLogger(__name__)


# Log lines about changes to agents and targets, derived from two consecutive announcements of an agent.
#
#     found an agent: node-1/1a2b3c4d serves ports 5680-5681 (rank 2 running, rank 3 waiting for a debugger)
#     rank 3 on node-1 is held by bob@laptop
#     rank 3 on node-1 crashed: ZeroDivisionError: division by zero; press F5 to attach to port 5681 within 30 min

MANY = 8
"""Maximum number of targets that are listed individually. If there are more, only the ports, the ranks, and the targets
that have crashed or are held are listed."""

FIRST_STOP = 10.0
"""Seconds after a debugger has attached in which its stop is logged; later stops are too many, and it shows them."""
ROUNDED_FROM = 5 * MINUTE
"""Seconds from which a remaining time is rounded to minutes; a shorter one would differ too much from the job's log."""


@dataclass(frozen=True)
class AgentEvent:
    """One log line."""

    text: str
    is_warning: bool = False
    is_alarm: bool = False
    """True if the user should act now, in which case the terminal bell rings."""


LeadsTo = Callable[[TargetInfo], bool | None]
"""Returns whether a port on this machine leads to a target; None if the log must not state how to attach to it."""


def agent_events(
    before: AgentInfo | None,
    after: AgentInfo,
    now: float,
    former: Collection[TargetInfo] = (),
    leads_to: LeadsTo = lambda _target: True,
) -> Iterator[AgentEvent]:
    """Yield the changes between two announcements of an agent, or a description of the whole agent if it is new.

    Args:
        before: The last announcement, or None.
        after: The new announcement.
        now: Unix time.
        former: Targets from earlier announcements; see `node_changes`.
        leads_to: Whether F5 can attach to a target.
    """
    if before is None:
        yield AgentEvent(f"found an agent: {describe_agent(after, now)}")
        yield from _crashes(after.targets, after, now, leads_to)
        if after.run_url and not after.node_rank:  # once for all nodes of a job
            yield AgentEvent(f"run {after.run}: {after.run_url}")
        if after.version > VERSION:
            yield AgentEvent(f"{after.name} is newer than this client; some of its information may not be shown")
        return
    old = {target.port: target for target in before.targets}
    new = {target.port: target for target in after.targets}
    old_node, new_node = (node_record(info, map(target_record, info.targets)) for info in (before, after))
    crashed: list[TargetInfo] = []
    for event in node_changes(old_node, new_node, now, former):
        known, target = old.get(event.port or 0), new.get(event.port or 0)
        if target is not None and event.state == State.CRASHED.value:
            crashed.append(target)
        elif text := _logged_text(event, known, target, now, leads_to):
            yield AgentEvent(text)
    for port in sorted(old.keys() & new.keys()):
        yield from _peer_timeout(old[port], new[port], after)
    if added := [new[port] for port in sorted(new.keys() - old.keys())]:
        yield AgentEvent(f"{after.host} also serves {_ports(added)}{_details(added, now)}")
    yield from _crashes(crashed, after, now, leads_to)
    if after.forwards != before.forwards:
        forwards = f"now forwards {format_ports(after.forwards)}" if after.forwards else "no longer forwards any port"
        yield AgentEvent(f"{after.host} {forwards}")


def _logged_text(event: Event, old: TargetInfo | None, new: TargetInfo | None, now: float, leads_to: LeadsTo) -> str:
    """Return the log line about an event; "" if another line states it, or if users need not know it."""
    if event.event == "ended" or old is None or new is None:
        return event.text if event.event == "ended" else ""
    if event.event == "free" and old.attachment is not None and old.attachment.since is not None:
        return f"{event.text} after {duration(now - old.attachment.since)}"
    if event.state == State.WAITING.value:
        return ": ".join(filter(None, [event.text, _how_to_attach(new, now, leads_to)]))
    if event.event in {"stopped", "continued"}:
        return event.text if event.event == "stopped" and _is_first_stop(old, new) else ""
    is_known = new.attachment is not None or old.state not in {State.WAITING, State.CRASHED}
    return "" if is_known and event.state == State.RUNNING.value else event.text


def _is_first_stop(old: TargetInfo, new: TargetInfo) -> bool:
    """Return whether it has become known where a debugger that has just attached has stopped its target."""
    held = new.attachment
    if held is None or held.since is None or held.stopped_since is None or rank_view(old).place:
        return False
    return held.stopped_at != "" and held.stopped_since - held.since < FIRST_STOP


def _peer_timeout(old: TargetInfo, new: TargetInfo, agent: AgentInfo) -> Iterator[AgentEvent]:
    if new.attachment is not None and new.peer_timeout is not None and old.peer_timeout is None:
        waits = f"the other ranks wait at most {duration(new.peer_timeout)} for it (timeout of the process group)"
        yield AgentEvent(f"{name_with_node(new, agent)}: {waits}", is_warning=True)


def _crashes(changed: Iterable[TargetInfo], agent: AgentInfo, now: float, leads_to: LeadsTo) -> Iterator[AgentEvent]:
    """Yield one event about all targets that are held at a crash and have no debugger, with the first cause."""
    crashed = [target for target in changed if target.state is State.CRASHED and target.attachment is None]
    if not crashed:
        return
    first, *others = sorted(crashed, key=lambda one: (is_consequence(one.detail), one.since or now))
    crash = f"{name_with_node(first, agent)} {rank_view(first).clause}"
    more = f"{_ranks(others)} crashed as well" if others else ""
    text = "; ".join(filter(None, [crash, _how_to_attach(first, now, leads_to), more]))
    yield AgentEvent(text, is_warning=True, is_alarm=True)


def _how_to_attach(target: TargetInfo, now: float, leads_to: LeadsTo) -> str:
    what = f"press F5 to attach to port {target.port}"
    if (has_port := leads_to(target)) is None:
        return ""
    if not has_port:
        which = f"--ports {target.port}" if target.rank is None else f"attach {target.rank}"
        what = f"to attach, run 'relay-client {which}'"
    if target.until is None:
        return what
    left = max(0, round(target.until - now))
    return f"{what} within {f'{left} s' if left < ROUNDED_FROM else duration(left + MINUTE / 2)}"


def describe_agent(agent: AgentInfo, now: float) -> str:
    """Return one line with the name of an agent and what it serves."""
    node = "" if agent.node_rank is None else f" (node {agent.node_rank})"
    targets = f" serves {_ports(agent.targets)}{_details(agent.targets, now)}" if agent.targets else ""
    forwards = sorted(set(agent.forwards) - {target.port for target in agent.targets})
    forwarded = f" forwards {format_ports(forwards)}" if forwards else ""
    serves = " and".join(filter(None, [targets, forwarded])) or " serves nothing"
    return f"{agent.name}{node}{serves}"


def describe_state(target: TargetInfo, now: float) -> str:
    """Return the state and the attachment of a target, as in `held by bob@laptop for 4 min`; "" if unknown."""
    view = rank_view(target)
    if target.attachment is None:
        return view.text
    held = f"held by {target.attachment.who}"
    if target.attachment.since is not None:
        held += f" for {duration(now - target.attachment.since)}"
    return held if view.kind is Kind.RUNNING else f"{view.text}, {held}"


def attachment_texts(agents: Iterable[AgentInfo], now: float, before: float = math.inf) -> list[str]:
    """Return a text for each target whose attachment began before a time: `rank 3 held by bob@laptop for 4 min`."""
    return [
        f"{target.label}{_which(target, agent.shared_labels)} {describe_state(target, now)}"
        for agent in agents
        for target in agent.targets
        if target.attachment is not None and (target.attachment.since or 0.0) < before
    ]


def name_with_node(target: TargetInfo, agent: AgentInfo) -> str:
    """Return a target's name, as in `rank 0 on vm`, or `rank 0 on vm (port 5701)` if several jobs have a rank 0."""
    return f"{target.label} on {agent.host}{_which(target, agent.shared_labels)}"


def _which(target: TargetInfo, shared: Collection[str]) -> str:
    """Return a target's port if another target has the same label, else ""."""
    return f" (port {target.port})" if target.label in shared else ""


def _ports(targets: Iterable[TargetInfo]) -> str:
    return format_ports(target.port for target in targets)


def _ranks(targets: Collection[TargetInfo]) -> str:
    ranks = {target.rank for target in targets if target.rank is not None}
    return format_ranks(ranks) if ranks else _ports(targets)


def _details(targets: Iterable[TargetInfo], now: float) -> str:
    """Return ranks and states in brackets; a long list includes only the states of crashed and attached targets."""
    shown = [target for target in targets if target.rank is not None or target.attachment is not None]
    if len(shown) > MANY:
        ranks = format_ranges(sorted(target.rank for target in shown if target.rank is not None))
        special = [target for target in shown if target.attachment is not None or target.state is State.CRASHED]
        texts = [f"ranks {ranks}"] if ranks else []
    else:
        special, texts = shown, []
    shared = shared_labels(shown)
    texts += [f"{target.label}{_which(target, shared)} {describe_state(target, now)}".strip() for target in special]
    return f" ({', '.join(texts)})" if texts else ""


# The log of agent events: maintains the roster and logs one line for each change to agents, tunnels and conflicts.

MAX_LINES = 64
"""Maximum number of changes in one announcement that are logged individually; a node rarely has more processes."""
ALARM_INTERVAL = 1.0
"""Minimum number of seconds between alarms."""
REMINDER_INTERVAL = 300.0
"""Seconds between reminders about attached debuggers; users are reminded because a paused job costs money."""


def _many_changes(before: AgentInfo | None, after: AgentInfo) -> str:
    """Return one line about changes that are too many to be listed."""
    changed = set(before.targets if before is not None else ()).symmetric_difference(after.targets)
    return f"{_ranks(changed)} on {after.host} have changed; run 'relay-client targets' to list their states"


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
        self._alarm_at = 0.0
        """When the user was last alarmed."""
        self._interrupted: set[AgentId] = set()
        """Agents whose tunnels were logged as interrupted."""

    def name(self, agent_id: AgentId) -> str:
        """Return the display name of an agent."""
        agent = self.roster.agent(agent_id)
        return agent.name if agent else f"agent/{agent_id[:8]}"

    def announced(self, info: AgentInfo, leads_to: LeadsTo = lambda _target: True) -> None:
        """Store an announcement in the roster and log what has changed, with how to attach."""
        now = time.time()
        before = self.roster.put(info, now)
        former = self.roster.former_targets(info.id)
        events = list(islice(agent_events(before, info, now, former, leads_to), MAX_LINES + 1))
        is_alarm = any(event.is_alarm for event in events)
        if len(events) > MAX_LINES:
            events = [AgentEvent(_many_changes(before, info), is_warning=is_alarm)]
        if is_alarm and now - self._alarm_at >= ALARM_INTERVAL:
            self._alarm_at = now
            self._alarm()
        for event in events:
            logger.log(logging.WARNING if event.is_warning else logging.INFO, "%s", event.text)

    def link_changed(self, agent_id: AgentId, status: LinkStatus) -> None:
        """Store and log the new state of the tunnel to an agent."""
        if status.state is LinkState.RECONNECTING:
            self.roster.lost(agent_id, time.time())
        elif status.state is LinkState.CONNECTED:
            self.roster.found(agent_id)
        name, agent = self.name(agent_id), self.roster.agent(agent_id)
        attachments = "".join(f"; {text}" for text in attachment_texts([agent] if agent else [], time.time()))
        if status.state is LinkState.CONNECTED:
            round_trip = f", round trip {status.round_trip * 1000:.1f} ms" if status.round_trip is not None else ""
            # A command that shows only warnings has shown the interruption, so it also shows the end of it.
            if logger.isEnabledFor(logging.WARNING if agent_id in self._interrupted else logging.INFO):
                text = f"tunnel to {name}: connected{round_trip}{attachments}"
                logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None))
            self._interrupted.discard(agent_id)
        elif status.state is LinkState.OVER:
            self._interrupted.discard(agent_id)
            logger.warning("tunnel to %s: lost: %s", name, status.reason)
        else:
            self._interrupted.add(agent_id)
            since = time.strftime("%H:%M:%S", time.localtime(status.since))
            logger.warning(
                "tunnel to %s: %s since %s: %s%s", name, status.state.value, since, status.reason, attachments
            )

    def conflicts(self) -> list[Conflict]:
        """Return the current conflicts between claims, and log the new ones."""
        conflicts = self.roster.conflicts(time.time())
        for conflict in conflicts:
            if conflict.key not in self._conflicts:
                logger.warning(
                    "port %d is claimed twice: %s claimed it first and keeps it, so %s cannot be reached; give one of "
                    "the jobs a different --debug-port",
                    *(conflict.port, conflict.kept.owner, conflict.refused.owner),
                )
        self._conflicts = {conflict.key for conflict in conflicts}
        return conflicts

    async def remind_of_attachments(self) -> NoReturn:
        """Log at intervals which targets are held, for a minute or longer, and by whom, until cancelled."""
        while True:
            await asyncio.sleep(REMINDER_INTERVAL)
            now = time.time()
            if texts := attachment_texts(self.roster, now, now - MINUTE):
                logger.info("%s", "; ".join(texts))

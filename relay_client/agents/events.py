"""What users are told when an agent or a target changes: one line per event, made from two announcements.

found node-1/1a2b3c4d: serves 5680-5681 (rank 2 running, rank 3 waiting for a debugger)
rank 3 on node-1 held by bob@laptop
rank 3 on node-1 crashed: ZeroDivisionError: division by zero; press F5 on port 5681 within 30 min
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from relay_client.agents.roster import Conflict
from relay_client.ui.text import MINUTE, duration
from relay_core.agent_api.announcement import AgentInfo, Attachment, State, TargetInfo
from relay_core.ranges import format_ranges

__all__ = ["News", "conflict_text", "describe_agent", "describe_state", "held_texts", "news_of"]

MANY = 8
"""Targets that are told one by one; of more only the ports are told."""


@dataclass(frozen=True)
class News:
    """One line for the user."""

    text: str
    is_warning: bool = False
    is_alarm: bool = False
    """Worth a bell: somebody should come now."""


def news_of(before: AgentInfo | None, after: AgentInfo, now: float) -> Iterator[News]:
    """Yield what has changed since an agent's last announcement; all of it if this is the first.

    Args:
        before: What it said last, or None.
        after: What it says now.
        now: Unix seconds.
    """
    if before is None:
        yield News(f"found {describe_agent(after, now)}")
        for target in after.targets:
            if _wants_somebody(target):
                yield _crashed(target, after, now)
        return
    old = {target.port: target for target in before.targets}
    new = {target.port: target for target in after.targets}
    for port in sorted(old.keys() - new.keys()):
        yield News(f"{_where(old[port], after)} is gone{_pid(old[port])}")
    came = [new[port] for port in sorted(new.keys() - old.keys())]
    if came:
        yield News(f"{after.host} serves {_ports(came)} as well{_notes(came, now)}")
    for port in sorted(old.keys() & new.keys()):
        yield from _changes(old[port], new[port], after, now)
    for target in came:
        if _wants_somebody(target):
            yield _crashed(target, after, now)
    if after.forwards != before.forwards:
        yield News(f"{after.host} forwards {format_ranges(after.forwards) or 'nothing'}")


def _changes(old: TargetInfo, new: TargetInfo, agent: AgentInfo, now: float) -> Iterator[News]:
    where = _where(new, agent)
    if old.pid != new.pid:
        yield News(f"{where} was restarted: pid {old.pid} -> {new.pid}")
    yield from _attachment_changes(old.attachment, new.attachment, where, now)
    if (new.state, new.detail, new.pid) == (old.state, old.detail, old.pid):
        return
    if _wants_somebody(new):
        yield _crashed(new, agent, now)
    elif new.state is State.WAITING:
        yield News(f"{where} waits for a debugger: press F5 on port {new.port}{_within(new, now)}")
    elif new.state is State.RUNNING and old.state in {State.WAITING, State.CRASHED}:
        yield News(f"{where} runs")


def _attachment_changes(old: Attachment | None, new: Attachment | None, where: str, now: float) -> Iterator[News]:
    if new is not None and (old is None or old.user != new.user):
        yield News(f"{where} held by {new.user}")
    elif old is not None and new is None:
        held = f" after {duration(now - old.since)}" if old.since is not None else ""
        yield News(f"{where} is free: {old.user} left{held}")


def _wants_somebody(target: TargetInfo) -> bool:
    """Whether it is held at a crash that nobody is looking at."""
    return target.state is State.CRASHED and target.attachment is None


def _crashed(target: TargetInfo, agent: AgentInfo, now: float) -> News:
    why = f": {target.detail}" if target.detail else ""
    text = f"{_where(target, agent)} crashed{why}; press F5 on port {target.port}{_within(target, now)}"
    return News(text, is_warning=True, is_alarm=True)


def _within(target: TargetInfo, now: float) -> str:
    if target.until is None:
        return ""
    left = target.until - now
    return f" within {duration(left + MINUTE / 2 if left > MINUTE else round(left))}"


def describe_agent(agent: AgentInfo, now: float) -> str:
    """Return what an agent is and serves, in one line."""
    node = "" if agent.node_rank is None else f" (node {agent.node_rank})"
    targets = f" serves {_ports(agent.targets)}{_notes(agent.targets, now)}" if agent.targets else ""
    forwards = sorted(set(agent.forwards) - {target.port for target in agent.targets})
    forwarded = f" forwards {format_ranges(forwards)}" if forwards else ""
    serves = " and".join(filter(None, [targets, forwarded])) or " serves nothing"
    return f"{agent.name}{node}{serves}"


def describe_state(target: TargetInfo, now: float) -> str:
    """Return what a target does, in a few words; "" if it is not known."""
    crashed = f"crashed{f': {target.detail}' if target.detail else ''}" if target.state is State.CRASHED else ""
    if target.attachment is not None:
        held = f"held by {target.attachment.user}"
        if target.attachment.since is not None:
            held += f" for {duration(now - target.attachment.since)}"
        return f"{crashed}, {held}" if crashed else held
    if target.state is State.WAITING:
        return "waiting for a debugger"
    return crashed or target.state.value


def held_texts(agents: Iterable[AgentInfo], now: float) -> list[str]:
    """Return a text for each target that somebody's debugger holds: `rank 3 held by bob@laptop for 4 min`."""
    return [
        f"{target.label} {describe_state(target, now)}"
        for agent in agents
        for target in agent.targets
        if target.attachment is not None
    ]


def conflict_text(conflict: Conflict) -> str:
    """Return what users are told about two claims to one port."""
    return (
        f"port {conflict.port} is claimed twice: {conflict.kept.owner} was first and keeps it, "
        f"{conflict.refused.owner} is not reached; give one of the two jobs another --debug-port"
    )


def _where(target: TargetInfo, agent: AgentInfo) -> str:
    return f"{target.label} on {agent.host}"


def _pid(target: TargetInfo) -> str:
    return "" if target.pid is None else f" (pid {target.pid})"


def _ports(targets: Iterable[TargetInfo]) -> str:
    return format_ranges(sorted(target.port for target in targets))


def _notes(targets: Iterable[TargetInfo], now: float) -> str:
    """Return ranks and states in brackets, of all or, if they are many, of those that are held or want somebody."""
    shown = [target for target in targets if target.rank is not None or target.attachment is not None]
    if len(shown) > MANY:
        ranks = format_ranges(sorted(target.rank for target in shown if target.rank is not None))
        special = [target for target in shown if target.attachment is not None or target.state is State.CRASHED]
        texts = [f"ranks {ranks}"] if ranks else []
    else:
        special, texts = shown, []
    texts += [f"{target.label} {describe_state(target, now)}".strip() for target in special]
    return f" ({', '.join(texts)})" if texts else ""

"""Log lines for changes of agents and targets: one line per event, from two consecutive announcements.

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

__all__ = ["AgentEvent", "agent_events", "attachment_texts", "conflict_text", "describe_agent", "describe_state"]

MANY = 8
"""Maximum number of targets that are listed one by one; for more, only ports, ranks and special states are shown."""


@dataclass(frozen=True)
class AgentEvent:
    """One log line."""

    text: str
    is_warning: bool = False
    is_alarm: bool = False
    """True if the user should act now; the terminal's bell then rings."""


def agent_events(before: AgentInfo | None, after: AgentInfo, now: float) -> Iterator[AgentEvent]:
    """Yield the changes between two announcements of an agent, or a description of the whole agent if it is new.

    Args:
        before: The last announcement, or None.
        after: The new announcement.
        now: Unix time.
    """
    if before is None:
        yield AgentEvent(f"found {describe_agent(after, now)}")
        yield from _found(after, now)
        return
    old = {target.port: target for target in before.targets}
    new = {target.port: target for target in after.targets}
    for port in sorted(old.keys() - new.keys()):
        yield AgentEvent(f"{_where(old[port], after)} became unavailable{_pid(old[port])}")
    added = [new[port] for port in sorted(new.keys() - old.keys())]
    if added:
        yield AgentEvent(f"{after.host} also serves {_ports(added)}{_details(added, now)}")
    for port in sorted(old.keys() & new.keys()):
        yield from _changes(old[port], new[port], after, now)
    for target in added:
        if _needs_attention(target):
            yield _crashed(target, after, now)
    if after.forwards != before.forwards:
        yield AgentEvent(f"{after.host} forwards {format_ranges(after.forwards) or 'nothing'}")


def _found(agent: AgentInfo, now: float) -> Iterator[AgentEvent]:
    for target in agent.targets:
        if _needs_attention(target):
            yield _crashed(target, agent, now)
    if agent.run_url and not agent.node_rank:  # once for the nodes of a job
        yield AgentEvent(f"run {agent.run}: {agent.run_url}")


def _changes(old: TargetInfo, new: TargetInfo, agent: AgentInfo, now: float) -> Iterator[AgentEvent]:
    where = _where(new, agent)
    if old.pid != new.pid:
        yield AgentEvent(f"{where} was restarted: pid {old.pid} -> {new.pid}")
    yield from _attachment_changes(old.attachment, new.attachment, where, now)
    if (new.state, new.detail, new.pid) == (old.state, old.detail, old.pid):
        return
    if _needs_attention(new):
        yield _crashed(new, agent, now)
    elif new.state is State.WAITING:
        yield AgentEvent(f"{where} is waiting for a debugger: press F5 on port {new.port}{_within(new, now)}")
    elif new.state is State.RUNNING and old.state in {State.WAITING, State.CRASHED}:
        yield AgentEvent(f"{where} is running")


def _attachment_changes(old: Attachment | None, new: Attachment | None, where: str, now: float) -> Iterator[AgentEvent]:
    if new is not None and (old is None or old.user != new.user):
        yield AgentEvent(f"{where} held by {new.user}")
    elif old is not None and new is None:
        held = f" after {duration(now - old.since)}" if old.since is not None else ""
        yield AgentEvent(f"{where} is free: {old.user} disconnected{held}")


def _needs_attention(target: TargetInfo) -> bool:
    """True if the target is held at a crash and no debugger is attached."""
    return target.state is State.CRASHED and target.attachment is None


def _crashed(target: TargetInfo, agent: AgentInfo, now: float) -> AgentEvent:
    why = f": {target.detail}" if target.detail else ""
    text = f"{_where(target, agent)} crashed{why}; press F5 on port {target.port}{_within(target, now)}"
    return AgentEvent(text, is_warning=True, is_alarm=True)


def _within(target: TargetInfo, now: float) -> str:
    if target.until is None:
        return ""
    left = target.until - now
    return f" within {duration(left + MINUTE / 2 if left > MINUTE else round(left))}"


def describe_agent(agent: AgentInfo, now: float) -> str:
    """Return the name of an agent and what it serves, in one line."""
    node = "" if agent.node_rank is None else f" (node {agent.node_rank})"
    targets = f" serves {_ports(agent.targets)}{_details(agent.targets, now)}" if agent.targets else ""
    forwards = sorted(set(agent.forwards) - {target.port for target in agent.targets})
    forwarded = f" forwards {format_ranges(forwards)}" if forwards else ""
    serves = " and".join(filter(None, [targets, forwarded])) or " serves nothing"
    return f"{agent.name}{node}{serves}"


def describe_state(target: TargetInfo, now: float) -> str:
    """Return the state and the attachment of a target, as in `held by bob@laptop for 4 min`; "" if unknown."""
    crashed = f"crashed{f': {target.detail}' if target.detail else ''}" if target.state is State.CRASHED else ""
    if target.attachment is not None:
        held = f"held by {target.attachment.user}"
        if target.attachment.since is not None:
            held += f" for {duration(now - target.attachment.since)}"
        return f"{crashed}, {held}" if crashed else held
    if target.state is State.WAITING:
        return "waiting for a debugger"
    return crashed or target.state.value


def attachment_texts(agents: Iterable[AgentInfo], now: float) -> list[str]:
    """Return a text for each target with an attachment: `rank 3 held by bob@laptop for 4 min`."""
    return [
        f"{target.label}{_which(target, agent.targets)} {describe_state(target, now)}"
        for agent in agents
        for target in agent.targets
        if target.attachment is not None
    ]


def conflict_text(conflict: Conflict) -> str:
    """Return the log line about two claims to one port."""
    return (
        f"port {conflict.port} is claimed twice: {conflict.kept.owner} claimed it first and keeps it, "
        f"{conflict.refused.owner} cannot be reached; give one of the jobs another --debug-port"
    )


def _where(target: TargetInfo, agent: AgentInfo) -> str:
    return f"{target.label} on {agent.host}{_which(target, agent.targets)}"


def _which(target: TargetInfo, others: Iterable[TargetInfo]) -> str:
    """Return the port of a target if another one has the same name, because each job has a rank 0; "" otherwise."""
    is_ambiguous = any(other.label == target.label and other.port != target.port for other in others)
    return f" (port {target.port})" if is_ambiguous else ""


def _pid(target: TargetInfo) -> str:
    return "" if target.pid is None else f" (pid {target.pid})"


def _ports(targets: Iterable[TargetInfo]) -> str:
    return format_ranges(sorted(target.port for target in targets))


def _details(targets: Iterable[TargetInfo], now: float) -> str:
    """Return ranks and states in brackets; for a long list, only the states of crashed and attached targets."""
    shown = [target for target in targets if target.rank is not None or target.attachment is not None]
    if len(shown) > MANY:
        ranks = format_ranges(sorted(target.rank for target in shown if target.rank is not None))
        special = [target for target in shown if target.attachment is not None or target.state is State.CRASHED]
        texts = [f"ranks {ranks}"] if ranks else []
    else:
        special, texts = shown, []
    texts += [f"{target.label}{_which(target, shown)} {describe_state(target, now)}".strip() for target in special]
    return f" ({', '.join(texts)})" if texts else ""

"""Derives events, with their texts, from two consecutive records of a node. The log shows few of the stops. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from relay_client.ranks.record import Node, Target
from relay_client.ranks.view import Kind, StopReport
from relay_core.agent_api.announcement import State, TargetInfo, shared_labels

CONNECTED, CONNECTING, LOST = "connected", "connecting", "lost"
"""States of a tunnel, as `relay_core.net.session.client.LinkState` names them."""


@dataclass(frozen=True)
class Event:
    """One event."""

    event: str
    """One of `EVENTS`."""
    time: float
    text: str
    """One line of text for users."""
    client: str = ""
    """Id of the relay-client."""
    agent: str | None = None
    host: str | None = None
    rank: int | None = None
    port: int | None = None
    """Logical port of the rank; for events about local ports and their connections, the local port."""
    pid: int | None = None
    connection: int | None = None
    state: str | None = None
    detail: str | None = None
    holder: str | None = None
    reason: str | None = None
    file: str | None = None
    line: int | None = None
    level: str | None = None
    """Level of a log line: `debug`, `info`, `warning` or `error`."""


def node_changes(old: Node | None, new: Node, now: float, former: Collection[TargetInfo] = ()) -> Iterator[Event]:
    """Yield an event for each difference; changes in round trips and usage produce no events.

    Args:
        old: The last record, or None for a new node, of which nothing that has ended is an event.
        new: The new record.
        now: Unix time of the events.
        former: Targets from before the last record. The end of a target with the same name is shown with its port.
    """
    yield from _link_changes(old, new, now)
    if old is not None:
        yield from _endings(old, new, now, former)
    before = {target.port: target for target in old.targets} if old is not None else {}
    shared = shared_labels(new.targets)
    for target in sorted(new.targets, key=lambda target: target.port):
        yield from _changes_of_target(before.get(target.port), target, _about(new, target, shared, now))
    yield from _wait_changes(before, new, now)


def _link_changes(old: Node | None, new: Node, now: float) -> Iterator[Event]:
    before = old.link if old is not None else CONNECTING
    if new.link in {before, CONNECTING}:
        return
    because = f": {new.link_reason}" if new.link_reason else ""
    about = Event("", now, "", agent=new.agent, host=new.host, reason=new.link_reason)
    if new.link == LOST:
        yield replace(about, event="ended", text=f"{new.label}: the session has ended{because}")
    elif new.link != CONNECTED:
        if before in {CONNECTED, CONNECTING}:
            yield replace(about, event="lost", text=f"{new.label}: {new.link}{because}")
    elif before == CONNECTING:
        yield replace(about, event="connected", text=f"{new.label}: connected")
    else:
        yield replace(about, event="resumed", text=f"{new.label}: connected again")


def _endings(old: Node, new: Node, now: float, former: Collection[TargetInfo]) -> Iterator[Event]:
    """Yield an event for each end, which may be announced later, and for each target that has left without one."""
    before, after = ({target.port: target for target in node.targets} for node in (old, new))
    known = {(one.port, one.pid) for one in old.ended if one.is_final}
    found = {(one.port, one.pid): one for one in new.ended}
    exited = (Target(one.port, one.rank, pid=one.pid) for one in new.ended)
    named = {(target.port, target.pid): target for target in (*exited, *old.targets)}
    shared = shared_labels((*named.values(), *former, *new.targets))
    for port in sorted(before.keys() - after.keys()):
        if (port, before[port].pid) not in found:
            about = _about(new, before[port], shared, now)
            yield replace(about, event="ended", text=f"{about.text} became unavailable{_pid(about)}")
    for key, one in found.items():
        if one.is_final and key not in known:
            about = _about(new, named[key], shared, now)
            yield replace(about, event="ended", text=f"{about.text}{_pid(about)} {one.how}", reason=one.how)


def _pid(about: Event) -> str:
    return "" if about.pid is None else f" (pid {about.pid})"


def _about(node: Node, target: Target, shared: Collection[str], now: float) -> Event:
    """Return an event about a target, with an empty kind and only the beginning of its text."""
    text = f"{target.label} on {node.host}{f' (port {target.port})' if target.label in shared else ''}"
    return Event("", now, text, agent=node.agent, host=node.host, rank=target.rank, port=target.port, pid=target.pid)


def _changes_of_target(old: Target | None, new: Target, about: Event) -> Iterator[Event]:
    known, name = old or Target(new.port), about.text
    is_other = old is not None and old.pid != new.pid
    if is_other:
        yield replace(about, event="state", text=f"{name} has a new process: pid {known.pid} -> {new.pid}")
    is_same = old is not None and (old.state, old.detail) == (new.state, new.detail)
    if not is_same or (is_other and new.state != State.RUNNING.value):
        yield replace(about, event="state", text=f"{name} {new.clause}", state=new.state, detail=new.detail)
    if new.holder is not None and new.who != known.who:
        yield replace(about, event="held", text=f"{name} is held by {new.who}", holder=new.holder)
    elif new.holder is None and known.holder is not None:
        yield replace(about, event="free", text=f"{name} is free: {known.holder} disconnected", holder=known.holder)
    stop, last = _stop(new), _stop(known)
    if stop is None and last is not None:
        yield replace(about, event="continued", text=f"{name} continues")
    elif stop is not None and (stop != last or new.place != known.place) and not _is_known(known, new):
        yield _stopped(new, stop, about)


def _stop(target: Target) -> StopReport | None:
    """Return where a target is stopped, as its debugger reports here or, if that is elsewhere, as its node announces.

    The announcement is later than the report. A target that is held at a crash is not stopped by being held.
    """
    is_crashed = target.kind == Kind.CRASHED.value and target.state != State.CRASHED.value
    if _is_reported_here(target) or not (is_crashed or target.kind == Kind.STOPPED.value):
        return target.stop
    file, _, line = target.place.rpartition(":")
    uncaught = target.text.partition(": ")[2] if is_crashed else ""
    number = int(line) if line.isdecimal() else None
    return StopReport("", target.since or 0.0, file or None, number, uncaught=uncaught or None)


def _is_reported_here(target: Target) -> bool:
    return target.attached_here or target.stop is not None


def _is_known(old: Target, new: Target) -> bool:
    """Return whether a stop is only known from another source than before."""
    if _is_reported_here(old) == _is_reported_here(new):
        return False
    return _is_reported_here(old) or (_stop(old) is not None and old.place == new.place)


def _stopped(target: Target, stop: StopReport, about: Event) -> Event:
    what = f"is stopped{f' at {target.place}' if target.place else ''}{f' ({stop.reason})' if stop.reason else ''}"
    text = f"{about.text} {target.clause if stop.uncaught else what}"
    reason = stop.reason or None
    return replace(
        about, event="stopped", text=text, reason=reason, file=stop.file, line=stop.line, detail=stop.uncaught
    )


def _wait_changes(before: Mapping[int, Target], new: Node, now: float) -> Iterator[Event]:
    """Yield an event for the ranks of a node that begin to wait for the same ranks, or no longer wait."""
    running = {port: target.text for port, target in before.items() if target.kind == Kind.RUNNING.value}
    changed = [target for target in new.targets if target.kind == Kind.RUNNING.value and target.port in running]
    for text in dict.fromkeys(target.text for target in changed if target.text != running[target.port]):
        yield Event("state", now, f"{new.label}: ranks are {text}", agent=new.agent, host=new.host, state="running")

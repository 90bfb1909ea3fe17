"""The announcement of an agent: its identity, its targets with their states, and the attachments to them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NewType, Protocol

from relay_core.agent_api import VERSION
from relay_core.agent_api.ending import Ending
from relay_core.agent_api.fitting import COMMON_FIELDS, targets_of_runs
from relay_core.agent_api.resources.usage import NodeUsage
from relay_core.agent_api.values import (
    Clean,
    as_is,
    count,
    flag,
    items,
    link,
    mapping,
    path,
    port,
    seconds,
    text,
    without_missing,
)

__all__ = ["AgentId", "AgentInfo", "Attachment", "State", "TargetInfo", "shared_labels"]

AgentId = NewType("AgentId", str)
"""Identifies an agent for its lifetime; also the id of its listener at the relay."""


class State(enum.Enum):
    """The state of a target's process, regardless of whether a debugger is attached."""

    UNKNOWN = ""
    """Not reported (a port of `relay-agent serve`), or a state that a later version introduced."""
    RUNNING = "running"
    WAITING = "waiting"
    """Blocked until a debugger attaches."""
    CRASHED = "crashed"
    """Held at an uncaught exception."""

    @classmethod
    def _missing_(cls, _value: object) -> State:
        return cls.UNKNOWN


@dataclass(frozen=True)
class Attachment:
    """The debugger attached to a target; a target has at most one."""

    user: str
    """`user@host` of the client."""
    since: float | None = None
    """Unix time by the node's clock."""
    is_stopped: bool | None = None
    """Whether the debugger has stopped the process; None if the agent does not announce it."""
    stopped_at: str = ""
    """File name and line, as in `train.py:41`; "" if unknown."""
    stopped_since: float | None = None
    """Unix time by the node's clock."""
    resumed_since: float | None = None
    """Unix time by the node's clock when the process last resumed; None if it is stopped or was not stopped before."""

    def encode(self) -> dict[str, object]:
        """Return the fields that an attachment adds to those of its target."""
        return {
            "holder": self.user,
            "held_since": self.since,
            "stopped": self.is_stopped,
            "stopped_at": self.stopped_at or None,
            "stopped_since": self.stopped_since,
            "resumed_since": self.resumed_since,
        }

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Attachment | None:
        """Read the attachment from the fields of its target; return None if no debugger is attached."""
        fields = mapping(value)
        user = text(fields.get("holder"), clean)
        if not user:
            return None
        return cls(
            user,
            since=seconds(fields.get("held_since")),
            is_stopped=flag(fields.get("stopped")),
            stopped_at=text(fields.get("stopped_at"), clean),
            stopped_since=seconds(fields.get("stopped_since")),
            resumed_since=seconds(fields.get("resumed_since")),
        )


@dataclass(frozen=True)
class TargetInfo:
    """One process that can be debugged, or one port of `relay-agent serve`."""

    port: int
    """The logical port of the target."""
    rank: int | None = None
    world: int | None = None
    """Number of ranks in its job."""
    pid: int | None = None
    script: str = ""
    cwd: str = ""
    """The directory in which it was started."""
    state: State = State.UNKNOWN
    detail: str = ""
    """Details of the state, e.g. the exception."""
    since: float | None = None
    """Unix time, by the node's clock, when the state began."""
    until: float | None = None
    """Unix time when the state ends unless a debugger attaches, e.g. the end of the hold after a crash."""
    attachment: Attachment | None = None
    pushes: int = 0
    """Number of times that code of the process has been replaced; when this number changes, a client compares its files
    again."""

    @property
    def label(self) -> str:
        """Display name: `rank 3`, or `port 5678`."""
        return f"port {self.port}" if self.rank is None else f"rank {self.rank}"

    @property
    def activity_since(self) -> float | None:
        """Unix time, by the node's clock, when the process last stopped or, if it is running, last resumed.

        For a crashed process, and for one without a debugger, the time when its state began.
        """
        attached = self.attachment
        if attached is None or self.state is State.CRASHED:
            return self.since
        return attached.stopped_since if attached.is_stopped else attached.resumed_since or self.since

    def encode(self) -> dict[str, object]:
        """Return one element of `targets`; unknown fields are omitted."""
        fields: dict[str, object] = {
            "port": self.port,
            "rank": self.rank,
            "world": self.world,
            "pid": self.pid,
            "script": self.script or None,
            "cwd": self.cwd or None,
            "state": self.state.value or None,
            "detail": self.detail or None,
            "since": self.since,
            "until": self.until,
            "pushes": self.pushes or None,
            **(self.attachment.encode() if self.attachment else {}),
        }
        return without_missing(fields)

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> TargetInfo | None:
        """Read one element of `targets`; return None if its port is missing or invalid."""
        fields = mapping(value)
        number = port(fields.get("port"))
        if number is None:
            return None
        return cls(
            port=number,
            rank=count(fields.get("rank")),
            world=count(fields.get("world")),
            pid=count(fields.get("pid")),
            script=text(fields.get("script"), clean),
            cwd=path(fields.get("cwd"), clean),
            state=State(text(fields.get("state"))),
            detail=text(fields.get("detail"), clean),
            since=seconds(fields.get("since")),
            until=seconds(fields.get("until")),
            attachment=Attachment.parse(fields, clean),
            pushes=count(fields.get("pushes")) or 0,
        )


class _Labelled(Protocol):
    @property
    def port(self) -> int: ...
    @property
    def label(self) -> str: ...


def shared_labels(targets: Iterable[_Labelled]) -> frozenset[str]:
    """Return the labels that targets with different ports have, for example if two jobs have a rank 0."""
    ports: dict[str, int] = {}
    return frozenset(target.label for target in targets if ports.setdefault(target.label, target.port) != target.port)


@dataclass(frozen=True)
class AgentInfo:
    """One agent, its targets and its forwards."""

    id: AgentId
    host: str = "agent"
    cwd: str = ""
    node_rank: int | None = None
    run: str = ""
    """The id of the job's run, as set by its launcher."""
    run_url: str = ""
    """The address of the run's page, such as that in Azure ML studio."""
    targets: tuple[TargetInfo, ...] = ()
    """Each port occurs once."""
    forwards: tuple[int, ...] = ()
    """Other ports on its node that clients may connect to, in ascending order."""
    usage: NodeUsage | None = None
    """Resource usage of the node and its processes; None without `--debug-monitor`."""
    endings: tuple[Ending, ...] | None = None
    """The endings of targets, the latest one for each port; None if the agent does not announce them."""
    generation: int = 0
    """Number of the agent's current control channel. A higher number means that older transports may close soon."""
    predecessors: tuple[AgentId, ...] = ()
    """Agents of the same node that were killed. Sessions with them cannot be resumed."""
    prefetch: bool = False
    """Whether the agent supports DAP prefetching; see `relay_core.dap.prefetch`."""
    version: int = VERSION

    @property
    def name(self) -> str:
        """Display name: `host/1a2b3c4d`."""
        return f"{self.host}/{self.id[:8]}"

    @cached_property
    def shared_labels(self) -> frozenset[str]:
        """Labels that several of the targets have."""
        return shared_labels(self.targets)

    def ending(self, port: int, pid: int | None) -> Ending | None:
        """Return how the target with this logical port and process id ended, or None if that is not announced."""
        return next((ending for ending in self.endings or () if (ending.port, ending.pid) == (port, pid)), None)

    def target(self, port: int) -> TargetInfo | None:
        """Return the target with this logical port."""
        return next((target for target in self.targets if target.port == port), None)

    def encode(self) -> dict[str, object]:
        """Return the whole announcement.

        It has every field, because a STATUS replaces only the fields that it contains.
        """
        return {
            "version": self.version,
            "agent": self.id,
            "host": self.host,
            "cwd": self.cwd,
            "node_rank": self.node_rank,
            "run": self.run or None,
            "run_url": self.run_url or None,
            "targets": [target.encode() for target in self.targets],
            "common": {},  # fields common to targets, and targets in compact form; see `relay_core.agent_api.fitting`
            "runs": [],
            "forwards": list(self.forwards),
            "generation": self.generation,
            "predecessors": list(self.predecessors),
            "asks_ahead": self.prefetch,  # this name in the wire format is older than the term prefetch
            **({} if self.usage is None else {"usage": self.usage.encode()}),
            **({} if self.endings is None else {"endings": [ending.encode() for ending in self.endings]}),
        }

    @classmethod
    def parse(cls, value: object, *, agent_id: str = "", clean: Clean = as_is) -> AgentInfo:
        """Read an announcement; if two targets have the same port, the first one is kept.

        Args:
            value: The announcement's fields.
            agent_id: The id to use instead of the announced one, if any.
            clean: Applied to each text.
        """
        fields = mapping(value)
        targets: dict[int, TargetInfo] = {}
        common = {name: value for name, value in mapping(fields.get("common")).items() if name in COMMON_FIELDS}
        runs = list(targets_of_runs(fields.get("runs")))
        for element in [*items(fields.get("targets")), *runs]:
            if (target := TargetInfo.parse({**common, **mapping(element)}, clean)) is not None:
                targets.setdefault(target.port, target)
        forwards = (port(element) for element in items(fields.get("forwards")))
        predecessors = (AgentId(text(element, clean)) for element in items(fields.get("predecessors")))
        endings = fields.get("endings")
        found = (Ending.parse(element, clean) for element in items(endings))
        return cls(
            id=AgentId(clean(agent_id) or text(fields.get("agent"), clean)),
            host=text(fields.get("host"), clean) or "agent",
            cwd=text(fields.get("cwd"), clean),
            node_rank=count(fields.get("node_rank")),
            run=text(fields.get("run"), clean),
            run_url=link(fields.get("run_url"), clean),
            targets=tuple(sorted(targets.values(), key=lambda each: each.port) if runs else targets.values()),
            forwards=tuple(sorted({number for number in forwards if number is not None})),
            usage=NodeUsage.parse(fields.get("usage"), clean),
            endings=None if endings is None else tuple(ending for ending in found if ending is not None),
            generation=count(fields.get("generation")) or 0,
            predecessors=tuple(agent for agent in predecessors if agent),
            prefetch=fields.get("asks_ahead") is True,
            version=count(fields.get("version")) or 0,
        )

"""The announcement of an agent: its identity, its targets with their states, and the attachments to them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NewType, Protocol

from relay_core.agent_api import VERSION
from relay_core.agent_api.ending import Ending
from relay_core.agent_api.fitting import COMMON_FIELDS, targets_of_runs
from relay_core.agent_api.resources.usage import NodeUsage
from relay_core.agent_api.values import items, mapping
from relay_core.records import Clean, Link, Path, Port, Wire, as_is, encode, parse, read_non_empty, read_port

__all__ = ["AgentId", "AgentInfo", "Attachment", "State", "TargetInfo", "held_jobs", "shared_labels"]

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

    user: Annotated[str, Wire("holder", read=read_non_empty, is_required=True)]
    """`user@host` of the client."""
    since: Annotated[float | None, Wire("held_since")] = None
    """Unix time by the node's clock."""
    is_stopped: Annotated[bool | None, Wire("stopped")] = None
    """Whether the debugger has stopped the process; None if the agent does not announce it."""
    stopped_at: str = ""
    """File name and line, as in `train.py:41`; "" if unknown."""
    uncaught: str = ""
    """The uncaught exception at which the process is stopped, as in `ValueError: no`; "" if it is not at one, or if the
    agent cannot determine whether any code catches the exception."""
    stopped_since: float | None = None
    """Unix time by the node's clock."""
    resumed_since: float | None = None
    """Unix time by the node's clock when the process last resumed; None if it is stopped or was not stopped before."""


@dataclass(frozen=True)
class TargetInfo:
    """One process that can be debugged, or one port of `relay-agent serve`."""

    port: Port
    """The logical port of the target."""
    rank: int | None = None
    world: int | None = None
    """Number of ranks in its job."""
    pid: int | None = None
    script: str = ""
    cwd: Path = ""
    """The directory in which it was started."""
    state: State = State.UNKNOWN
    detail: str = ""
    """Details of the state, e.g. the exception."""
    since: float | None = None
    """Unix time, by the node's clock, when the state began."""
    until: float | None = None
    """Unix time when the state ends unless a debugger attaches, e.g. the end of the hold after a crash."""
    attachment: Annotated[Attachment | None, Wire(is_merged=True)] = None
    peer_timeout: float | None = None
    """Seconds for which other ranks wait for it in a collective operation; None if they wait as long as a debugger is
    attached, or if it is unknown."""
    pushes: int = 0
    """Number of times that code of the process has been replaced; when this number changes, a client compares its files
    again."""

    @property
    def label(self) -> str:
        """Display name: `rank 3`, or `port 5678`."""
        return f"port {self.port}" if self.rank is None else f"rank {self.rank}"

    @property
    def base_port(self) -> int:
        """The port of rank 0 of its job, which identifies the job on a hybrid connection."""
        return self.port - (self.rank or 0)

    @property
    def is_held(self) -> bool:
        """Whether other ranks may have to wait for the process, because a debugger is or may soon be attached to it."""
        return self.attachment is not None or self.state in {State.WAITING, State.CRASHED}

    @property
    def activity_since(self) -> float | None:
        """Unix time, by the node's clock, when the process last stopped or, if it is running, last resumed.

        For a crashed process, and for one without a debugger, the time when its state began.
        """
        attached = self.attachment
        if attached is None or self.state is State.CRASHED:
            return self.since
        return attached.stopped_since if attached.is_stopped else attached.resumed_since or self.since


def held_jobs(targets: Iterable[TargetInfo]) -> frozenset[int]:
    """Return the base ports of the jobs of which a rank is held."""
    return frozenset(target.base_port for target in targets if target.is_held)


class _Labelled(Protocol):
    @property
    def port(self) -> int: ...
    @property
    def label(self) -> str: ...


def shared_labels(targets: Iterable[_Labelled]) -> frozenset[str]:
    """Return the labels that targets with different ports have, for example if two jobs have a rank 0."""
    ports: dict[str, int] = {}
    return frozenset(target.label for target in targets if ports.setdefault(target.label, target.port) != target.port)


def _read_ports(value: Any, clean: Clean) -> object:
    ports = (read_port(each, clean) for each in value) if isinstance(value, list) else ()
    return tuple(sorted({each for each in ports if isinstance(each, int)}))


@dataclass(frozen=True)
class AgentInfo:
    """One agent, its targets and its forwards."""

    id: Annotated[AgentId, Wire("agent")]
    host: Annotated[str, Wire(read=read_non_empty)] = "agent"
    cwd: str = ""
    node_rank: int | None = None
    run: str = ""
    """The id of the job's run, as set by its launcher."""
    run_url: Link = ""
    """The address of the run's page, such as that in Azure ML studio."""
    targets: tuple[TargetInfo, ...] = ()
    """Each port occurs once."""
    forwards: Annotated[tuple[int, ...], Wire(read=_read_ports)] = ()
    """Other ports on its node that clients may connect to, in ascending order."""
    usage: NodeUsage | None = None
    """Resource usage of the node and its processes; None without `--debug-monitor`."""
    endings: tuple[Ending, ...] | None = None
    """The endings of targets, the latest one for each port; None if the agent does not announce them."""
    generation: int = 0
    """Number of the agent's current control channel. A higher number means that older transports may close soon."""
    predecessors: tuple[AgentId, ...] = ()
    """Agents of the same node that were killed. Sessions with them cannot be resumed."""
    prefetch: Annotated[bool, Wire("asks_ahead")] = False  # the name in the wire format is older than the term
    """Whether the agent supports DAP prefetching; see `relay_core.dap.prefetch`."""
    version: Annotated[int, Wire(missing=0)] = VERSION

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
        # Fields common to targets, and targets in compact form; see `relay_core.agent_api.fitting`.
        found = encode(self, complete=True) | {"common": {}, "runs": []}
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def parse(cls, value: object, *, agent_id: str = "", clean: Clean = as_is) -> AgentInfo:
        """Read an announcement; if two targets have the same port, the first one is kept.

        Args:
            value: The announcement's fields.
            agent_id: The id to use instead of the announced one, if any.
            clean: Applied to each text.
        """
        fields = dict(mapping(value))
        common = {name: value for name, value in mapping(fields.get("common")).items() if name in COMMON_FIELDS}
        runs = list(targets_of_runs(fields.get("runs")))
        fields["targets"] = [{**common, **mapping(each)} for each in [*items(fields.get("targets")), *runs]]
        if agent_id:
            fields["agent"] = agent_id
        found = parse(cls, fields, clean)
        targets: dict[int, TargetInfo] = {}
        for target in found.targets:
            targets.setdefault(target.port, target)
        ordered = sorted(targets.values(), key=lambda each: each.port) if runs else targets.values()
        return replace(found, targets=tuple(ordered))

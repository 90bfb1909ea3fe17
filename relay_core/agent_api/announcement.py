"""The announcement of an agent: its identity, its targets with their states, and the attachments to them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NewType, Protocol

from relay_core.agent_api import VERSION
from relay_core.agent_api.members import items, mapping
from relay_core.agent_api.usage import NodeUsage
from relay_core.records import Clean, Link, Path, Port, Wire, as_is, encode, parse, read_non_empty, read_port
from relay_core.value_parsers import TolerantEnum

__all__ = [
    "COMMON_FIELDS",
    "MAX_ANNOUNCEMENT",
    "AgentId",
    "AgentInfo",
    "Attachment",
    "Ending",
    "State",
    "TargetInfo",
    "fit",
    "shared_labels",
]


# How a target ended: its exit status or signal, if its agent could determine them.

MAX_STATUS = 255
MAX_SIGNAL = 64


@dataclass(frozen=True)
class Ending:
    """The end of one process. `status` and `signal` are both None if the agent could not read them."""

    port: Port
    """The logical port of the process."""
    pid: int | None = None
    status: Annotated[int | None, Wire(most=MAX_STATUS)] = None
    """Its exit status."""
    signal: Annotated[int | None, Wire(most=MAX_SIGNAL)] = None
    """The signal that killed it."""
    error: str = ""
    """Its uncaught exception."""
    replaced_by: str = ""
    """The program with which the process has replaced itself (exec), if it has not ended but did that."""
    is_final: Annotated[
        bool, Wire("exiting", read=lambda value, _clean: value is not True, write=lambda value: not value)
    ] = True
    """False while the process is still exiting; its status may follow."""


# Shrinks an announcement until it fits into a frame, so that a node can have thousands of targets.
#
#     1. texts are shortened, only the latest endings are kept, and the usage of processes is left out
#     2. values that most targets have in common are sent once, in `common`
#     3. details of each target are left out, in the order of `EXPENDABLE`
#     4. the targets with the highest ports, and forwards, are left out
#
# Rejected: to announce targets with consecutive ports and ranks as one range. A node has tens of processes, and a few
# bytes of a hostile announcement would represent as many targets as there are ports.
#
# The result depends only on the announcement. For 1,000 targets, steps 1 to 3 are enough.

MAX_ANNOUNCEMENT = 31 * 1024
"""Maximum size of the JSON in bytes; a frame holds 32 KiB, and a WELCOME has other fields too."""
COMMON_FIELDS = ("world", "script", "cwd", "state")
EXPENDABLE = (
    *("peer_timeout", "pushes", "since", "until", "stopped_since", "resumed_since", "pid", "held_since"),
    *("stopped_at", "uncaught"),
    *("detail", "cwd", "world", "script", "state", "stopped", "holder", "rank"),
)
"""Fields of targets, the least important first."""
MAX_SHORT_TEXT = 64
"""Maximum number of characters in a text after step 1."""
MAX_ENDINGS = 8
"""Maximum number of endings after step 1."""
MAX_FORWARDS = 256
"""Maximum number of forwards after step 4."""

Fields = dict[str, object]


def fit(announcement: Mapping[str, object], limit: int = MAX_ANNOUNCEMENT) -> Fields:
    """Return an announcement with at most `limit` bytes of JSON; if the given one fits, it is returned unchanged."""
    if _size(announcement) <= limit:
        return dict(announcement)
    rest = _short({name: value for name, value in announcement.items() if name not in {"targets", "common", "usage"}})
    if usage := mapping(announcement.get("usage")):
        rest["usage"] = {**usage, "processes": []}
    if "endings" in rest:
        rest["endings"] = [_short(mapping(ending)) for ending in items(rest["endings"])[-MAX_ENDINGS:]]
    targets = [_short(mapping(target)) for target in items(announcement.get("targets"))]
    common: Fields = {}

    def assembled(number: int | None = None) -> Fields:
        return {**rest, "targets": targets[:number], "common": common}

    if _size(assembled()) > limit:
        targets, common = _with_common(targets)
    for name in EXPENDABLE:
        if _size(assembled()) <= limit:
            return assembled()
        targets, common = [_without(target, name) for target in targets], _without(common, name)
    if _size(assembled()) > limit:
        rest |= {"endings": []} if "endings" in rest else {}
        rest["forwards"] = items(rest.get("forwards"))[:MAX_FORWARDS]
    return assembled(_most(lambda number: _size(assembled(number)) <= limit, len(targets)))


def _with_common(targets: list[Fields]) -> tuple[list[Fields], Fields]:
    """Return the targets without the most frequent values, and those values; a field that a target lacks is null."""
    common: Fields = {}
    for name in COMMON_FIELDS:
        for value, _ in Counter(target.get(name) for target in targets).most_common(1):
            common |= {} if value is None else {name: value}
    different = [
        {name: target.get(name) for name in {**target, **common} if target.get(name) != common.get(name)}
        for target in targets
    ]
    return different, common


def _without(fields: Fields, name: str) -> Fields:
    return {key: value for key, value in fields.items() if key != name}


def _most(fits: Callable[[int], bool], count: int) -> int:
    """Return the highest number up to `count` that fits; a lower number fits if a higher one does."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _short(fields: Mapping[str, object]) -> Fields:
    return {name: _short_text(name, value) if isinstance(value, str) else value for name, value in fields.items()}


def _short_text(name: str, value: str) -> str:
    # A truncated path would name another directory, and a truncated link another page.
    return value if name in {"cwd", "run_url"} else value[:MAX_SHORT_TEXT]


def _size(fields: Mapping[str, object]) -> int:
    """Return the size of the JSON that the tunnel sends."""
    return len(json.dumps(fields, separators=(",", ":")))


AgentId = NewType("AgentId", str)
"""Identifies an agent for its lifetime; also the id of its listener at the relay."""


class State(TolerantEnum):
    """The state of a target's process, regardless of whether a debugger is attached."""

    UNKNOWN = ""
    """Not reported (a port of `relay-agent serve`), or a state that a later version introduced."""
    RUNNING = "running"
    WAITING = "waiting"
    """Blocked until a debugger attaches."""
    CRASHED = "crashed"
    """Held at an uncaught exception."""


@dataclass(frozen=True)
class Attachment:
    """The debugger attached to a target; a target has at most one."""

    user: Annotated[str, Wire("holder", read=read_non_empty, is_required=True)]
    """`user@host` of the client."""
    since: Annotated[float | None, Wire("held_since")] = None
    """Unix time by the node's clock."""
    is_away: Annotated[bool, Wire("away")] = False
    """Whether the client has no connection at the moment; an agent cannot know whether the client has been killed."""
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

    @property
    def who(self) -> str:
        """The user as shown to others: `bob@laptop`, or `bob@laptop (not connected)`."""
        return f"{self.user} (not connected)" if self.is_away else self.user


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

    @cached_property
    def jobs(self) -> frozenset[int]:
        """Base ports of the jobs of the targets."""
        return frozenset(target.base_port for target in self.targets)

    @cached_property
    def held_jobs(self) -> frozenset[int]:
        """Base ports of the jobs of which a target is held."""
        return frozenset(target.base_port for target in self.targets if target.is_held)

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
        # `common` has the values that most targets have in common.
        found = encode(self, complete=True) | {"common": {}}
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
        fields["targets"] = [{**common, **mapping(each)} for each in items(fields.get("targets"))]
        if agent_id:
            fields["agent"] = agent_id
        found = parse(cls, fields, clean)
        targets: dict[int, TargetInfo] = {}
        for target in found.targets:
            targets.setdefault(target.port, target)
        return replace(found, targets=tuple(targets.values()))

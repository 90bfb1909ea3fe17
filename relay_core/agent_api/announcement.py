"""The announcement of an agent: its identity, its targets with their states, and the attachments to them."""

from __future__ import annotations

import base64
import bisect
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NewType, Protocol

from relay_core.agent_api import VERSION
from relay_core.agent_api.usage import NodeUsage
from relay_core.json_values import items, mapping
from relay_core.records import Clean, Link, NonEmpty, Path, Port, Wire, as_is, encode, parse, read_non_empty, read_port
from relay_core.value_parsers import TolerantEnum

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
    is_final: bool = True
    """False while the process is still exiting; its status may follow."""
    rank: int | None = None


# Shrinks an announcement until it fits into a frame, so that a node can have thousands of targets.
#
# A long announcement is compressed: one of 1,000 ranks takes 23 instead of 169 KB. If that is not enough, the usage of
# processes and forwards are left out, and then the targets with the highest ports.

MAX_ANNOUNCEMENT = 31 * 1024
"""Maximum size of the JSON in bytes; a frame holds 32 KiB, and a WELCOME has other fields too."""
MAX_DECOMPRESSED = 512 * 1024
"""Maximum size in bytes of the JSON that is compressed."""
MAX_TARGETS = 2_000
"""Maximum number of targets in an announcement; a node has tens of processes."""
MAX_ENDINGS = 8
MAX_FORWARDS = 256
"""Maximum numbers of endings and of forwards in an announcement that would be too long otherwise."""
COMPRESSED = "compressed"
"""The field of an announcement whose other fields are compressed."""

Fields = dict[str, object]


def fit(info: AgentInfo, limit: int = MAX_ANNOUNCEMENT) -> tuple[Fields, int]:
    """Return an announcement as JSON with at most `limit` bytes, and the number of targets that it leaves out."""
    fields = encode(info)
    if (found := _within(fields, limit)) is not None:
        return found, max(len(info.targets) - MAX_TARGETS, 0)
    usage, endings = info.usage and replace(info.usage, processes=()), info.endings and info.endings[-MAX_ENDINGS:]
    rest = encode(replace(info, targets=(), usage=usage, endings=endings, forwards=info.forwards[:MAX_FORWARDS]))
    targets = items(fields.get("targets"))

    def first(count: int) -> Fields | None:
        return _within({**rest, "targets": targets[:count]}, limit)

    most = bisect.bisect_left(range(1, len(targets) + 1), True, key=lambda count: first(count) is None)
    return first(most) or {"id": info.id}, len(info.targets) - most


def _within(fields: Fields, limit: int) -> Fields | None:
    """Return an announcement, compressed if necessary, with at most `limit` bytes of JSON; None if there is none."""
    data = _json(fields)
    if len(data) <= limit:
        return fields
    if len(data) > MAX_DECOMPRESSED:
        return None
    compressed: Fields = {"id": fields.get("id", ""), COMPRESSED: base64.b64encode(zlib.compress(data)).decode()}
    return compressed if len(_json(compressed)) <= limit else None


def _decompressed(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields of an announcement; none if the compressed ones are invalid or too long."""
    text = fields.get(COMPRESSED)
    if not isinstance(text, str):
        return fields
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(text, validate=True), MAX_DECOMPRESSED)
        return mapping(json.loads(data)) if stream.eof else {}
    except (ValueError, zlib.error, RecursionError):
        return {}


def _json(fields: Mapping[str, object]) -> bytes:
    """Return the JSON that the tunnel sends."""
    return json.dumps(fields, separators=(",", ":")).encode()


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

    user: NonEmpty
    """`user@host` of the client."""
    since: float | None = None
    """Unix time by the node's clock."""
    is_away: bool = False
    """Whether the client has no connection at the moment; an agent cannot know whether the client has been killed."""
    is_stopped: bool = False
    """Whether the debugger has stopped the process."""
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
    attachment: Attachment | None = None
    peer_timeout: float | None = None
    """Seconds for which other ranks wait for it in a collective operation; None if they wait as long as a debugger is
    attached, or if it is unknown."""
    pushes: int = 0
    """Number of times that code of the process has been replaced; when this number changes, a client compares its files
    again."""
    place: str = ""
    """Where it has crashed: file name and line, as in `train.py:41`; "" if unknown."""
    resumed_since: float | None = None
    """Unix time, by the node's clock, when it last resumed under an earlier debugger; None if it has not since
    `since`."""

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

        For a process that no debugger has stopped since, or that has crashed, the time when its state began.
        """
        attached = self.attachment
        if self.state is State.CRASHED:
            return self.since
        if attached is not None and attached.is_stopped:
            return attached.stopped_since
        return (attached.resumed_since if attached is not None else None) or self.resumed_since or self.since


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

    id: AgentId
    host: Annotated[str, Wire(read=read_non_empty)] = "agent"
    cwd: str = ""
    node_rank: int | None = None
    run: str = ""
    """The id of the job's run, as set by its launcher."""
    run_url: Link = ""
    """The address of the run's page, such as that in Azure ML studio."""
    targets: Annotated[tuple[TargetInfo, ...], Wire(most=MAX_TARGETS)] = ()
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
    prefetch: bool = False
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

    @classmethod
    def parse(cls, value: object, *, agent_id: str = "", clean: Clean = as_is) -> AgentInfo:
        """Read an announcement; if two targets have the same port, the first one is kept.

        Args:
            value: The announcement's fields.
            agent_id: The id to use instead of the announced one, if any.
            clean: Applied to each text.
        """
        found = parse(cls, _decompressed(mapping(value)), clean)
        targets: dict[int, TargetInfo] = {}
        for target in found.targets:
            targets.setdefault(target.port, target)
        return replace(found, id=AgentId(agent_id) or found.id, targets=tuple(targets.values()))

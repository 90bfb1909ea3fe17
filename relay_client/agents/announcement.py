"""What agents say about themselves, read into values: who they are, and which targets and forwards they serve.

    {"agent": id, "host": str, "cwd": str, "node_rank": int|null, "run": str|null,
     "targets": [{"port": int, "rank": int, "world": int, "pid": int, "script": str, "state": str, "detail": str,
                  "since": unix seconds, "until": unix seconds, "holder": "user@host", "held_since": unix seconds}],
     "forwards": [6006]}

Only `port` must be there: `relay-agent serve` says no more. A field that is missing, or of another kind than it should
be, reads as unknown; a target without a port is passed over.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from relay_client.ui.text import printable

__all__ = ["AgentInfo", "State", "TargetInfo"]

MAX_PORT = 65535


class State(enum.Enum):
    """What a target is doing."""

    UNKNOWN = ""
    """A port of `relay-agent serve`, or a state that this version does not know."""
    RUNNING = "running"
    WAITING = "waiting"
    """It stands still until a debugger comes."""
    ATTACHED = "attached"
    CRASHED = "crashed"
    """It is held at an uncaught exception."""

    @classmethod
    def _missing_(cls, _value: object) -> State:
        return cls.UNKNOWN


@dataclass(frozen=True)
class TargetInfo:
    """One debuggable process."""

    port: int
    """Its logical port."""
    rank: int | None = None
    world: int | None = None
    pid: int | None = None
    script: str = ""
    state: State = State.UNKNOWN
    detail: str = ""
    """More about the state, e.g. the exception."""
    since: float | None = None
    """Unix seconds, by the node's clock, when the state began."""
    until: float | None = None
    """Unix seconds when the state ends by itself, e.g. the hold of a crash."""
    holder: str = ""
    """The user whose debugger is connected."""
    held_since: float | None = None

    @property
    def label(self) -> str:
        """How people know it."""
        return f"port {self.port}" if self.rank is None else f"rank {self.rank}"

    @classmethod
    def parse(cls, value: object) -> TargetInfo | None:
        """Read one element of `targets`; None if it names no port."""
        if not isinstance(value, Mapping) or (port := _port(value.get("port"))) is None:
            return None
        return cls(
            port=port,
            rank=_count(value.get("rank")),
            world=_count(value.get("world")),
            pid=_count(value.get("pid")),
            script=printable(value.get("script")),
            state=State(value.get("state")),
            detail=printable(value.get("detail")),
            since=_seconds(value.get("since")),
            until=_seconds(value.get("until")),
            holder=printable(value.get("holder")),
            held_since=_seconds(value.get("held_since")),
        )


@dataclass(frozen=True)
class AgentInfo:
    """One agent and what it serves."""

    id: str
    host: str = "agent"
    cwd: str = ""
    node_rank: int | None = None
    run: str = ""
    targets: tuple[TargetInfo, ...] = ()
    forwards: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """How people know it: `host/1a2b3c4d`."""
        return f"{self.host}/{self.id[:8]}"

    def target(self, port: int) -> TargetInfo | None:
        """Return what has a logical port."""
        return next((target for target in self.targets if target.port == port), None)

    @classmethod
    def parse(cls, info: Mapping[str, object], *, agent_id: str) -> AgentInfo:
        """Read what an agent says about itself; of two targets with one port the first counts."""
        targets: dict[int, TargetInfo] = {}
        for value in _list(info.get("targets")):
            if (target := TargetInfo.parse(value)) is not None:
                targets.setdefault(target.port, target)
        forwards = (_port(value) for value in _list(info.get("forwards")))
        return cls(
            id=printable(agent_id),
            host=printable(info.get("host")) or "agent",
            cwd=printable(info.get("cwd")),
            node_rank=_count(info.get("node_rank")),
            run=printable(info.get("run")),
            targets=tuple(targets.values()),
            forwards=tuple(sorted({port for port in forwards if port is not None})),
        )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _port(value: object) -> int | None:
    port = _count(value)
    return port if port is not None and 1 <= port <= MAX_PORT else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None

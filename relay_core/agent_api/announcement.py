"""What an agent announces: who it is, which processes it serves, what they are doing, and who is attached to them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NewType

from relay_core.agent_api import VERSION
from relay_core.agent_api.values import Clean, as_is, count, items, mapping, port, seconds, text

__all__ = ["AgentId", "AgentInfo", "Attachment", "State", "TargetInfo"]

AgentId = NewType("AgentId", str)
"""Names an agent for its lifetime; the relay knows its listener by the same id."""


class State(enum.Enum):
    """What a target's process is doing, whether a debugger is attached to it or not."""

    UNKNOWN = ""
    """A port of `relay-agent serve`, or a state that this version does not know."""
    RUNNING = "running"
    WAITING = "waiting"
    """It stands still until a debugger attaches."""
    CRASHED = "crashed"
    """It is held at an uncaught exception."""

    @classmethod
    def _missing_(cls, _value: object) -> State:
        return cls.UNKNOWN


@dataclass(frozen=True)
class Attachment:
    """The debugger that is attached to a target; a target has one at most."""

    user: str
    """`user@host` of the client."""
    since: float | None = None
    """Unix seconds, by the node's clock."""

    def encode(self) -> dict[str, object]:
        """Return the fields that it adds to those of its target."""
        return {"holder": self.user, "held_since": self.since}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Attachment | None:
        """Read it from the fields of its target; None if nobody is attached."""
        fields = mapping(value)
        user = text(fields.get("holder"), clean)
        return cls(user, seconds(fields.get("held_since"))) if user else None


@dataclass(frozen=True)
class TargetInfo:
    """One process that can be debugged, or one port of `relay-agent serve`."""

    port: int
    """Its logical port."""
    rank: int | None = None
    world: int | None = None
    """Number of ranks in its job."""
    pid: int | None = None
    script: str = ""
    state: State = State.UNKNOWN
    detail: str = ""
    """More about the state, e.g. the exception."""
    since: float | None = None
    """Unix seconds, by the node's clock, when the state began."""
    until: float | None = None
    """Unix seconds when the state ends unless a debugger attaches, e.g. the hold of a crash."""
    attachment: Attachment | None = None

    @property
    def label(self) -> str:
        """How people know it."""
        return f"port {self.port}" if self.rank is None else f"rank {self.rank}"

    def encode(self) -> dict[str, object]:
        """Return one element of `targets`; what is unknown is left out."""
        fields: dict[str, object] = {
            "port": self.port,
            "rank": self.rank,
            "world": self.world,
            "pid": self.pid,
            "script": self.script or None,
            "state": self.state.value or None,
            "detail": self.detail or None,
            "since": self.since,
            "until": self.until,
            **(self.attachment.encode() if self.attachment else {}),
        }
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> TargetInfo | None:
        """Read one element of `targets`; None if it names no port."""
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
            state=State(text(fields.get("state"))),
            detail=text(fields.get("detail"), clean),
            since=seconds(fields.get("since")),
            until=seconds(fields.get("until")),
            attachment=Attachment.parse(fields, clean),
        )


@dataclass(frozen=True)
class AgentInfo:
    """One agent and what it serves."""

    id: AgentId
    host: str = "agent"
    cwd: str = ""
    node_rank: int | None = None
    run: str = ""
    """The run of the job, as its launcher names it."""
    targets: tuple[TargetInfo, ...] = ()
    """By port; each port once."""
    forwards: tuple[int, ...] = ()
    """Other ports of its node that clients may reach, in ascending order."""
    generation: int = 0
    """Counts the agent's control channels. A new number means that older transports may end soon."""
    prefetch: bool = False
    """Whether it supports DAP prefetching; see `relay_core.dap.prefetch`."""
    version: int = VERSION

    @property
    def name(self) -> str:
        """How people know it: `host/1a2b3c4d`."""
        return f"{self.host}/{self.id[:8]}"

    def target(self, port: int) -> TargetInfo | None:
        """Return what has a logical port."""
        return next((target for target in self.targets if target.port == port), None)

    def encode(self) -> dict[str, object]:
        """Return the whole announcement.

        Every field is there: a STATUS changes the fields that it has, and leaves the others as they were announced.
        """
        return {
            "version": self.version,
            "agent": self.id,
            "host": self.host,
            "cwd": self.cwd,
            "node_rank": self.node_rank,
            "run": self.run or None,
            "targets": [target.encode() for target in self.targets],
            "forwards": list(self.forwards),
            "generation": self.generation,
            "asks_ahead": self.prefetch,
        }

    @classmethod
    def parse(cls, value: object, *, agent_id: str = "", clean: Clean = as_is) -> AgentInfo:
        """Read an announcement; of two targets with one port the first counts.

        Args:
            value: All fields that the agent has announced.
            agent_id: What the client knows it by, if not by the id that it announces.
            clean: Applied to each text.
        """
        fields = mapping(value)
        targets: dict[int, TargetInfo] = {}
        for element in items(fields.get("targets")):
            if (target := TargetInfo.parse(element, clean)) is not None:
                targets.setdefault(target.port, target)
        forwards = (port(element) for element in items(fields.get("forwards")))
        return cls(
            id=AgentId(clean(agent_id) or text(fields.get("agent"), clean)),
            host=text(fields.get("host"), clean) or "agent",
            cwd=text(fields.get("cwd"), clean),
            node_rank=count(fields.get("node_rank")),
            run=text(fields.get("run"), clean),
            targets=tuple(targets.values()),
            forwards=tuple(sorted({number for number in forwards if number is not None})),
            generation=count(fields.get("generation")) or 0,
            prefetch=fields.get("asks_ahead") is True,
            version=count(fields.get("version")) or 0,
        )

"""What relay-client knows about the job behind one connection."""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.agent_api.announcement import Ending


@dataclass(frozen=True)
class JobView:
    """A snapshot; unknown fields are empty."""

    port: int
    """The logical port."""
    hybrid_connection: str = ""
    label: str = ""
    """Name of the target, with its node if known: `rank 0 on node-1`; with its port if several jobs have a rank 0."""
    is_alone: bool = False
    """True if the target is the only one in its job."""
    host: str = ""
    cwd: str = ""
    """The directory in which the target was started."""
    script: str = ""
    """The file or module that the target runs, without its directory."""
    holder: str = ""
    """Who has attached a debugger, as in `held by bob@laptop (since 12:03)`."""
    away_reason: str = ""
    """Why the tunnel has no connection at the moment; "" if it has one."""
    is_running: bool = False
    """True if the target is currently announced, and therefore has not exited."""
    announces_endings: bool = False
    """True if the agent announces why a target has ended."""
    ending: Ending | None = None
    """How the target has ended."""
    other_ports: tuple[int, ...] = ()
    """The logical ports of the registered processes, as long as none of them has had this port."""
    is_stopped: bool = False
    """True if the debugger has stopped the target."""
    peer_timeout: float | None = None
    """Seconds for which other ranks wait for a stopped target; None if they wait long enough, or if it is unknown."""
    pushes: int = 0
    """Number of times that the target's code has been replaced."""
    replaced: str = ""
    """A sentence about the stop of the debugger that this connection replaces if it can attach; "" if it had none."""

    @property
    def name(self) -> str:
        """The target, or the port that leads to it."""
        return self.label or f"port {self.port}"

    @property
    def subject(self) -> str:
        """Name of the target in sentences about how it ended."""
        return self.label if self.label and not self.is_alone else "the job"

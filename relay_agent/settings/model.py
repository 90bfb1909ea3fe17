"""How a process is to be debugged, whether a call, the command line or the environment sets it."""

from __future__ import annotations

from typing import NamedTuple

from relay_core.access_settings import AccessSettings

__all__ = ["DEFAULT_HOLD", "DEFAULT_PORT", "DEFAULT_TIMEOUTS", "DEFAULT_WAIT", "DebugSettings"]

DEFAULT_PORT = 5678
"""debugpy's customary port, and what `launch.json` files name."""
DEFAULT_WAIT = 600.0
"""Seconds a job waits for its debugger: long enough to press F5, short enough for a forgotten debug run."""
DEFAULT_HOLD = 1800.0
"""Seconds a process that crashed waits for somebody to look at it."""

DEFAULT_TIMEOUTS = 86400.0
"""Seconds a rank may keep its peers waiting when watchdogs are raised: longer than anybody sits at a breakpoint."""


class DebugSettings(NamedTuple):
    """One run's settings, the same for all its processes; `relay_agent.settings.table` names their sources."""

    access: AccessSettings = AccessSettings()
    """What the agent needs in order to listen; it looks up in its environment what is not set here."""
    port: int = DEFAULT_PORT
    """Logical port of rank 0; that of rank n is n more."""
    ranks: str = "0"
    """Which ranks wait for a debugger, in the grammar of `relay_agent.settings.rank_selection`; the others are debugged
    on demand."""
    wait: float = DEFAULT_WAIT
    """Seconds; 0 means that no rank waits."""
    abort_on_timeout: bool = False
    """Whether a process to which no debugger attached in time exits."""
    on_crash: bool = False
    """Whether the first uncaught exception holds its process."""
    hold: float = DEFAULT_HOLD
    """Seconds that a crashed process, or one at `relay_agent.breakpoint()`, waits for a debugger."""
    timeouts: float | None = None
    """Seconds to which the timeouts of collective communication are raised; None leaves them alone."""
    forwards: tuple[int, ...] = ()
    """Ports on this machine that clients may reach besides the debuggers."""
    follow_children: bool = False
    """Whether a debugger is offered child processes too."""

    def __repr__(self) -> str:
        return f"<DebugSettings '{self.access.hc}' port {self.port} ranks {self.ranks}>"

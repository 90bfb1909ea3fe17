"""How a process is to be debugged, wherever that was said: in a call, on the command line or in the environment."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    """One run's settings; the same for all its processes."""

    access: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """What the agent needs in order to listen: the fields of `relay_core.auth.AccessSettings`, and `ca_file`. What is
    left out the agent looks up in its environment."""
    port: int = DEFAULT_PORT
    """Logical port of rank 0; that of rank n is n more."""
    ranks: str = "0"
    """Which ranks wait for a debugger, in the grammar of `relay_agent.settings.rank_selection`; the others are debugged
    on demand."""
    wait: float = DEFAULT_WAIT
    """Seconds; 0 means that nobody waits."""
    abort_on_timeout: bool = False
    """Whether a process for which no debugger came in time ends."""
    on_crash: bool = False
    """Whether the first uncaught exception holds its process."""
    hold: float = DEFAULT_HOLD
    """Seconds that a crashed process, or one at `relay_agent.breakpoint()`, waits for a debugger."""
    timeouts: float | None = None
    """Seconds to which the watchdogs of collective communication are raised; None leaves them alone."""
    forwards: tuple[int, ...] = ()
    """Ports on this machine that clients may reach besides the debuggers."""
    follow_children: bool = False
    """Whether a debugger is offered child processes too."""

    def __repr__(self) -> str:
        return f"<DebugSettings '{self.access.get('hc')}' port {self.port} ranks {self.ranks}>"

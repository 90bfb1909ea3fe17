"""Debug settings of a run, independent of their source: a function call, the command line or the environment."""

from __future__ import annotations

from typing import NamedTuple

from relay_core.access_settings import AccessSettings

__all__ = ["DEFAULT_HOLD", "DEFAULT_MONITOR", "DEFAULT_PORT", "DEFAULT_TIMEOUTS", "DEFAULT_WAIT", "DebugSettings"]

DEFAULT_PORT = 5678
"""debugpy's usual port, which most `launch.json` files use."""
DEFAULT_WAIT = 600.0
"""Seconds that a job waits for its debugger: enough time to press F5, but not too long for a forgotten debug run."""
DEFAULT_HOLD = 1800.0
"""Seconds that a crashed process waits for a debugger."""

DEFAULT_MONITOR = 10.0
"""Seconds between two samples of the monitor, as in InnerEye-DeepLearning's `--monitoring_interval_seconds`."""
DEFAULT_TIMEOUTS = 86400.0
"""Default for raised timeouts of collective operations in seconds: longer than a debugging session at a breakpoint."""


class DebugSettings(NamedTuple):
    """The settings of a run, the same for all its processes; `relay_agent.settings.table` names their sources."""

    access: AccessSettings = AccessSettings()
    """Settings for the agent's listener; for unset fields, the agent uses its environment."""
    port: int = DEFAULT_PORT
    """Logical port of rank 0; rank n has this number plus n."""
    ranks: str = "0"
    """Which ranks wait for a debugger, in the grammar of `relay_agent.settings.rank_selection`; the others are debugged
    on demand."""
    wait: float = DEFAULT_WAIT
    """Seconds; 0 means that no rank waits."""
    abort_on_timeout: bool = False
    """Whether a process exits if no debugger attaches in time."""
    on_crash: bool = False
    """Whether a process is held at its first uncaught exception."""
    hold: float = DEFAULT_HOLD
    """Seconds that a crashed process, or one at `relay_agent.breakpoint()`, waits for a debugger."""
    timeouts: float | None = None
    """Seconds to which the timeouts of collective communication are raised; 0 leaves them unchanged, and None raises
    them only while a rank is held."""
    forwards: tuple[int, ...] = ()
    """Further ports on this machine that clients may reach."""
    event_directories: tuple[str, ...] = ()
    """Directories whose TensorBoard event files clients may read, relative to the one in which the job was started."""
    monitor: float | None = None
    """Seconds between two samples of processors, memory and GPUs; None for no monitor."""
    metrics: tuple[str, int] | None = None
    """Host and port at which the monitor serves its latest sample to Prometheus; None for no server."""
    follow_children: bool = False
    """Whether child processes are offered to the debugger too."""
    values: bool = True
    """Whether tensors, arrays and tables are shown by type, shape and device, and slow values have a deadline."""
    allow_edit: bool = False
    """Whether `relay-client push` may replace the code of the running processes."""

    def __repr__(self) -> str:
        return f"<DebugSettings '{self.access.hc}' port {self.port} ranks {self.ranks}>"

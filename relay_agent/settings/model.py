"""Debug settings of a run, independent of their source, and the grammar of `--debug-ranks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from relay_core.access_settings import AccessSettings
from relay_core.value_parsers import parse_ranges

if TYPE_CHECKING:
    from relay_agent.settings.ranks import ProcessIdentity


# Grammar of `--debug-ranks`, which selects the ranks of a job that wait for a debugger.
#
#     good:  0        the first rank (the default)
#            0,3-5    these four ranks
#            all      every rank
#            master   the first rank, as other tools call it
#            none     no rank: all are on demand
#     bad:   5-3      start greater than end
#            1.5, ""  not numbers
#
# A rank that is not selected can still be debugged on demand.


class RankSelection(NamedTuple):
    """A set of ranks, stored as ranges because a text can name billions of them."""

    ranges: tuple[range, ...] = ()
    every: bool = False
    """Whether all ranks are selected."""

    def includes(self, identity: ProcessIdentity) -> bool:
        """Return whether this process is selected."""
        return self.every or any(each.start <= identity.rank < each.stop for each in self.ranges)


_WORDS = {
    "all": RankSelection(every=True),
    "master": RankSelection((range(1),)),
    "none": RankSelection(),
}


def parse_ranks(text: str) -> RankSelection:
    """Return the ranks that a text selects.

    Raises:
        UsageError: the text does not follow the grammar.
    """
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    example = "a list such as 0,3-5, or all, master or none"
    return RankSelection(tuple(parse_ranges(text, what="list of ranks", example=example)))


# Debug settings of a run, independent of their source: a function call, the command line or the environment.

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
    ranks: RankSelection = RankSelection((range(1),))
    """Which ranks wait for a debugger: by default, only the first, as in a job without ranks; the others are debugged
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

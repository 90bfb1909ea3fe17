"""Which runs TensorBoard shows: `--runs all` or `--runs a,b`, `--experiment X`, `--filters Running,Completed`.

Also the names of the folders for their copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay_core.errors import UsageError

ALL = "all"
DEFAULT_FILTERS = "Running,Completed"
STATUSES: Mapping[str, str] = {"running": "RUNNING", "completed": "FINISHED", "failed": "FAILED", "canceled": "KILLED"}
"""MLflow's name for each state of a run, by Azure ML's name."""


@dataclass(frozen=True)
class Selection:
    """The runs to show."""

    runs: frozenset[str] = frozenset()
    """Ids of runs; empty if all are chosen."""
    experiment: str = ""
    """Name of the experiment whose runs are chosen; "" for none."""
    statuses: frozenset[str] = frozenset()
    """The states of runs, as MLflow names them."""

    @property
    def has_running(self) -> bool:
        """Whether runs that are still running are chosen."""
        return STATUSES["running"] in self.statuses

    @property
    def ended(self) -> frozenset[str]:
        """The statuses of runs that have ended."""
        return self.statuses - {STATUSES["running"]}

    def includes(self, run: str) -> bool:
        """Whether `runs` chooses a running job with this run id; of an experiment, MLflow lists the runs."""
        return not self.runs or run in self.runs


def parse_selection(runs: str | None, experiment: str | None, filters: str) -> Selection:
    """Return the selection of these options.

    Raises:
        UsageError: a filter is unknown, no run is named, or `all` or an experiment is combined with ids of runs.
    """
    names = [name.strip() for name in (runs or ALL).split(",") if name.strip()]
    if not names or (ALL in names and len(names) > 1):
        raise UsageError(f"--runs: invalid list of runs: '{runs}'", hint="use all, or ids such as run_1,run_2")
    if experiment and names != [ALL]:
        raise UsageError("--runs and --experiment cannot be combined", hint="omit one of them")
    words = [word.strip().lower() for word in filters.split(",") if word.strip()]
    unknown = [word for word in words if word not in STATUSES]
    if unknown or not words:
        state = unknown[0] if unknown else filters
        raise UsageError(f"--filters: invalid state: '{state}'", hint="use Running,Completed,Failed,Canceled")
    chosen = frozenset() if names == [ALL] else frozenset(names)
    return Selection(chosen, experiment or "", frozenset(STATUSES[word] for word in words))


def folder_name(text: str) -> str:
    """Return a text as the name of a folder of at most 100 bytes, without characters that a system does not allow."""
    name = "".join(char if char.isalnum() or char in "-_." else "_" for char in text)
    name = name.encode(errors="ignore")[:100].decode(errors="ignore").strip(".")
    return name or "run"

"""The verbs `eval` and `diff`: one expression in all ranks, as text or compared by checksum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay_client.verbs.verb import Answer, Command, Verb
from relay_core.exit_codes import NO_VALUE

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels

VALUE_SECONDS = 5.0
"""Seconds that each rank has to evaluate a value."""
DIFF_SECONDS = 60.0
"""Seconds that each rank has for a comparison; a gigabyte takes about one second, or longer if it is on a device."""
_ARGUMENTS = {
    "expression": "a Python expression",
    "seconds": "time limit for each rank, such as 30s or 5m (default: 5s, or 60s for checksums)",
}


@dataclass(frozen=True)
class Evaluate(Verb):
    """Evaluate an expression in all processes, and group equal values."""

    name = "eval"
    changes_job = True  # an expression can execute any code
    command = Command(
        "evaluate an expression in all ranks",
        "Evaluates a Python expression in all ranks. If a rank is stopped, the expression is evaluated in the "
        "innermost frame of your code; otherwise, it is evaluated with the globals of the rank's program or, if it "
        "has other names, in the innermost frame of your code that has them. Equal values are grouped, rarest first. "
        "The command does not stop any rank, and editors can stay attached. Exits with status 17 if the expression "
        "has no value in any rank.",
        {**_ARGUMENTS, "diff": "compare values by checksum, as 'relay-client diff' does"},
    )
    expression: str
    """A Python expression."""
    ranks: str = "all"
    """A list of global ranks, or `all`."""
    ports: str = ""
    """Logical ports, to choose one of several jobs; "" for all."""
    seconds: float | None = None
    """Time limit for each rank; by default, 5, or 60 for checksums."""
    diff: bool = False
    """Whether to compare values by checksum."""

    async def perform(self, tunnels: Tunnels) -> Answer:
        """Ask all agents; for a comparison, search for the first difference.

        Raises:
            ConnectionLost: no rank can be asked.
            NoListener: no chosen rank has a process.
            UsageError: the expression is missing or too long.
        """
        from relay_client.compare.collect import collect_values, find_differences
        from relay_client.compare.groups import as_objects, hint_about_jobs, hint_for, odd_ones_first, show_values
        from relay_core.agent_api import evaluation
        from relay_core.agent_api.announcement import State

        selection = evaluation.Selection() if self.diff else None
        seconds = self.seconds or (DIFF_SECONDS if self.diff else VALUE_SECONDS)
        request = evaluation.Evaluate(
            self.expression, selection, ranks=self.ranks, ports=self.ports, seconds=seconds
        ).checked()
        values = await collect_values(tunnels, request)
        groups = odd_ones_first(values)
        differences = await find_differences(tunnels, request, groups) if self.diff else None
        targets = [claim.target for claim in tunnels.reachable_targets()]
        # A wait in the middle of the program, such as that of `breakpoint()`, has a detail.
        waiting = {target.port for target in targets if target.state is State.WAITING and not target.detail}
        return Answer(
            show_values(groups, differences, values),
            {"groups": as_objects(groups, differences)},
            NO_VALUE if all(group.error for group in groups) else 0,
            hint=hint_for(groups, waiting),
            jobs_hint=hint_about_jobs(groups),
        )


@dataclass(frozen=True)
class Diff(Evaluate):
    """Compare the value of an expression across all processes by checksum, and find the first difference."""

    name = "diff"
    command = Command(
        "compare a value across all ranks",
        "Compares the value of a Python expression, such as 'model.state_dict()', across all ranks. Tensors and arrays "
        "are compared by shape, dtype and a checksum that is computed in the job. Finds and shows the first "
        "difference; the data stays in the job. Exits with status 17 if the expression has no value in any rank.",
        _ARGUMENTS,
    )
    diff: bool = True

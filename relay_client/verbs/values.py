"""The verbs `eval` and `diff`: one expression in all ranks, as text or compared by checksum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from relay_client.ui.text import parse_chosen_ports, parse_chosen_ranks
from relay_client.verbs.verb import LISTING, Answer, Command
from relay_core.errors import NoListener
from relay_core.exit_codes import NO_VALUE

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels

__all__ = ["DIFF_SECONDS", "VALUE_SECONDS", "Diff", "Evaluate"]

VALUE_SECONDS = 5.0
"""Seconds that each rank has to evaluate a value."""
DIFF_SECONDS = 60.0
"""Seconds that each rank has for a comparison; a gigabyte takes about one second, or longer if it is on a device."""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate an expression in all processes, and group equal values."""

    name: ClassVar[str] = "eval"
    result: ClassVar[type[Answer]] = Answer
    changes_job: ClassVar[bool] = True  # an expression can execute any code
    checks: ClassVar[Mapping[str, Callable[[str], object]]] = {
        "ranks": parse_chosen_ranks,
        "ports": parse_chosen_ports,
    }
    command: ClassVar[Command | None] = None
    compares: ClassVar[bool] = False
    expression: str
    """A Python expression."""
    ranks: str = "all"
    """A list of global ranks, or `all`."""
    ports: str = ""
    """Logical ports, to choose one of several jobs; "" for all."""
    seconds: float = VALUE_SECONDS
    """Time limit for each rank."""

    async def perform(self, tunnels: Tunnels) -> Answer:
        """Ask all agents; for a comparison, search for the first difference.

        Raises:
            NoListener: no chosen rank has a process.
            UsageError: the expression is missing or too long.
        """
        from relay_client.compare.collect import collect_values, find_differences
        from relay_client.compare.groups import as_objects, hint_about_jobs, hint_for, odd_ones_first, show_values
        from relay_core.agent_api import evaluation

        selection = evaluation.Selection() if self.compares else None
        request = evaluation.Evaluate(self.expression, self.ranks, self.seconds, selection, ports=self.ports).checked()
        groups = odd_ones_first(await collect_values(tunnels, request))
        if not groups:
            raise NoListener("no matching process is registered", hint=LISTING)
        differences = await find_differences(tunnels, request, groups) if self.compares else None
        return Answer(
            show_values(groups, differences),
            {"groups": as_objects(groups, differences)},
            NO_VALUE if all(group.error for group in groups) else 0,
            hint=hint_for(groups),
            jobs_hint=hint_about_jobs(groups),
        )


@dataclass(frozen=True)
class Diff(Evaluate):
    """Compare the value of an expression across all processes by checksum, and find the first difference."""

    name: ClassVar[str] = "diff"
    compares: ClassVar[bool] = True
    seconds: float = DIFF_SECONDS

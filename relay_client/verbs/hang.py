"""The verb `hang`: in which collective operation a job is waiting, and for which ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay_client.ui.text import LISTING, parse_chosen_ports
from relay_client.verbs.verb import Answer, Command, Verb
from relay_core.errors import ConnectionLost, NoListener
from relay_core.exit_codes import HANG_FOUND

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels


@dataclass(frozen=True)
class Hang(Verb):
    """Examine all processes and report which ranks are missing from a collective operation."""

    name = "hang"
    command = Command(
        "show which ranks a collective operation is waiting for",
        "Shows, for each process group, the collective operation in which ranks are waiting, the ranks "
        "that have entered it, and where the missing ranks are. Exits with status 16 if ranks are waiting, or with "
        "status 0 otherwise.",
        {"ports": "report only jobs with a rank on these logical ports, such as 5678-5685"},
    )
    ports: str = ""
    """Logical ports: only jobs with a rank on one of them are reported; "" for all jobs."""
    once: bool = False
    """Whether to ask only once, even if ranks may be waiting only briefly, as `--watch` does: `data` then has the
    `progress` of each job, and the request succeeds if no process is found."""

    @property
    def is_repeated(self) -> bool:
        """Whether a program asks this repeatedly."""
        return self.once

    async def perform(self, tunnels: Tunnels) -> Answer:
        """Ask all agents, until no rank is waiting only briefly.

        Raises:
            ConnectionLost: no rank can be asked.
            NoListener: no process is registered.
        """
        from relay_client.agents.tunnels import RECONNECTING
        from relay_client.hang.examine import examine, examine_once, progress_of
        from relay_client.hang.output import verdict_as_object, verdict_as_text
        from relay_client.ui.text import format_ports

        ports = parse_chosen_ports(self.ports)
        verdicts = await (examine_once if self.once else examine)(tunnels, ports)
        if not verdicts and not self.once:
            raise NoListener(f"no process found{f' with {format_ports(ports)}' if ports else ''}", hint=LISTING)
        found = verdict_as_object(verdicts)
        if self.once:
            found["progress"] = [progress_of(verdict) for verdict in verdicts]
        reports = [report for verdict in verdicts for report in verdict.job.ranks.values()]
        lost = [report.lost for report in reports if report.lost]
        if lost and not any(report.collectives for report in reports):
            raise ConnectionLost(f"no rank can be queried: {lost[0]}", hint=RECONNECTING)
        is_hanging = any(verdict.is_hanging for verdict in verdicts)
        unknown = any(one.collectives and one.collectives.problem and not one.is_stopped for one in reports)
        hint = "run 'relay-client stacks' to see what each rank is doing" if unknown and not is_hanging else ""
        return Answer(verdict_as_text(found), found, HANG_FOUND if is_hanging else 0, hint=hint)

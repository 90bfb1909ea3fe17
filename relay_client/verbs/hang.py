"""The verb `hang`: in which collective operation a job is waiting, and for which ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from relay_client.ui.text import parse_chosen_ports
from relay_client.verbs.verb import LISTING, Answer, Command
from relay_core.errors import NoListener
from relay_core.exit_codes import HANG_FOUND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay_client.agents.tunnels import Tunnels
    from relay_client.hang.verdict import JobVerdict

__all__ = ["Hang", "as_answer"]


@dataclass(frozen=True)
class Hang:
    """Examine all processes and report which ranks are missing from a collective operation."""

    name: ClassVar[str] = "hang"
    result: ClassVar[type[Answer]] = Answer
    changes_job: ClassVar[bool] = False
    checks: ClassVar[Mapping[str, Callable[[str], object]]] = {"ports": parse_chosen_ports}
    command: ClassVar[Command | None] = None
    ports: str = ""
    """Logical ports: only jobs with a rank on one of them are reported; "" for all jobs."""

    async def perform(self, tunnels: Tunnels) -> Answer:
        """Ask all agents, until no rank is waiting only briefly.

        Raises:
            NoListener: no process is registered.
        """
        from relay_client.hang.examine import examine
        from relay_client.ui.text import format_ports

        ports = parse_chosen_ports(self.ports)
        verdicts = await examine(tunnels, ports)
        if not verdicts:
            raise NoListener(f"no process found{f' with {format_ports(ports)}' if ports else ''}", hint=LISTING)
        return as_answer(verdicts)


def as_answer(verdicts: Sequence[JobVerdict]) -> Answer:
    """Return the verdicts on all jobs."""
    from relay_client.hang.output import verdict_as_object, verdict_as_text

    is_hanging = any(verdict.is_hanging for verdict in verdicts)
    return Answer(verdict_as_text(verdicts), verdict_as_object(verdicts), HANG_FOUND if is_hanging else 0)

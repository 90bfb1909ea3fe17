"""The verb `targets`: the processes that can be debugged."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay_client.verbs.verb import Answer, Command, Verb

if TYPE_CHECKING:
    from relay_client.agents.roster import Roster
    from relay_client.agents.tunnels import Tunnels
    from relay_client.ui.target_table import Row


@dataclass(frozen=True)
class Targets(Verb):
    """Search for agents, and return the processes that can be debugged."""

    name = "targets"
    command = Command(
        "list the processes that can be debugged",
        "Lists each process that can be debugged, with its node, rank, logical port, process id, script "
        "and state. If the job was started with --debug-monitor, also lists CPU, memory and GPU usage. With --json, "
        "prints the nodes that docs/reference/control-socket.md describes.",
        {},
    )
    width: int = 0
    """Number of columns of the terminal, to which the table is fitted; 0 for a table of any width."""
    color: bool = False
    """Whether the text has bold headings for a terminal."""

    def must_search(self, _roster: Roster) -> bool:
        """Return True: a job that has just been started is listed, even if the relay-client knows other agents."""
        return True

    async def perform(self, tunnels: Tunnels) -> Answer:
        """List what all agents have announced, and where editors of this program have stopped ranks."""
        from relay_client.hang.waits import Waits
        from relay_client.ranks.record import encode
        from relay_client.ui.target_table import plain_table, rows, run_lines, terminal_table

        if tunnels.roster.waits is None:  # no running relay-client looks at intervals
            await Waits(tunnels).look(is_only=True)
        nodes, now = tunnels.nodes_here(), time.time()
        lines = rows(nodes, now)
        table = terminal_table(lines, self.width, color=self.color) if self.width else plain_table(lines)
        runs = run_lines(nodes)
        return Answer("\n".join([table, *(["", *runs] if runs else [])]), {"time": now, "nodes": encode(nodes)})


def table_rows(tunnels: Tunnels) -> list[Row]:
    """Return the rows of the table of all targets."""
    from relay_client.ui.target_table import rows

    return rows(tunnels.nodes_here(), time.time())

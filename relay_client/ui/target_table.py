"""The table of all targets: as rows, as plain text, for a terminal, and as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from relay_client.ui.column_widths import column_widths, columns_to_show
from relay_client.ui.rank_view import Kind, RankView, rank_view
from relay_client.ui.text import duration
from relay_client.ui.usage_cells import USAGE_COLUMNS, usage_cells
from relay_core.agent_api.announcement import AgentInfo, TargetInfo

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "COLUMNS",
    "Row",
    "as_json",
    "by_node",
    "most_important",
    "plain_table",
    "rich_table",
    "rows",
    "run_lines",
    "summary",
]

COLUMNS = ("node", "rank", "port", "pid", "script", "state", "since", *USAGE_COLUMNS, "held by")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    cells: tuple[str, ...]
    """One text for each of `COLUMNS`."""
    kind: Kind | None = None
    """What the target is doing; None for an agent without targets."""
    is_attached: bool = False


def by_node(agents: Iterable[AgentInfo]) -> list[AgentInfo]:
    """Return agents by node rank; agents without a node rank come last."""
    return sorted(agents, key=lambda agent: (agent.node_rank is None, agent.node_rank, agent.name))


def rows(
    agents: Sequence[AgentInfo], now: float, port_owners: Mapping[tuple[str, int], str] = MappingProxyType({})
) -> list[Row]:
    """Return one row for each target, and one for each agent without targets.

    Args:
        agents: The agents in the order of the table.
        now: The current Unix time.
        port_owners: The display name of the process to which a target's port leads instead, by agent and port.
    """
    found: list[Row] = []
    for agent in agents:
        for target in sorted(agent.targets, key=lambda target: target.port):
            view = rank_view(target, port_owner=port_owners.get((agent.id, target.port), ""))
            found.append(_row(agent, target, view, now))
        if not agent.targets:
            forwards = ", ".join(map(str, agent.forwards))
            state = f"forwards {forwards}" if forwards else "no targets"
            found.append(Row((_node(agent), "", "", "", "", state, "", *usage_cells(agent.usage), "")))
    return found


def most_important(lines: Sequence[Row], limit: int) -> tuple[list[Row], Sequence[Row]]:
    """Split rows into those that fit on a terminal and those that do not, each in their original order.

    Crashed and stopped processes take precedence over waiting processes, which take precedence over running processes.
    """
    if len(lines) <= limit:
        return list(lines), []
    order = sorted(range(len(lines)), key=lambda number: (_urgency(lines[number]), number))
    return [lines[number] for number in sorted(order[:limit])], [lines[number] for number in sorted(order[limit:])]


def summary(hidden: Sequence[Row]) -> str:
    """Return a line that replaces the hidden rows: `... and 42 more: 40 running, 2 waiting`."""
    kinds = Counter(row.kind.value for row in hidden if row.kind not in {None, Kind.UNKNOWN})
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"... and {len(hidden)} more{f': {counts}' if counts else ''}"


def _urgency(row: Row) -> int:
    """Return a smaller number for a row that is more important to the user."""
    if row.kind in {Kind.CRASHED, Kind.STOPPED}:
        return 0
    if row.kind is not Kind.RUNNING:
        return 1
    return 2 if row.is_attached else 3


def _row(agent: AgentInfo, target: TargetInfo, view: RankView, now: float) -> Row:
    attached = target.attachment
    held = f"{attached.user}{_ago(attached.since, now, ', ')}" if attached else ""
    numbers = (target.rank, target.port, target.pid)
    rank, port, pid = ("" if number is None else str(number) for number in numbers)
    used = usage_cells(agent.usage, target.port)
    cells = (_node(agent), rank, port, pid, target.script, view.text, _ago(view.since, now), *used, held)
    return Row(cells, view.kind, attached is not None)


def _node(agent: AgentInfo) -> str:
    return agent.host if agent.node_rank is None else f"{agent.node_rank} {agent.host}"


def _ago(since: float | None, now: float, before: str = "") -> str:
    return "" if since is None else f"{before}{duration(now - since)}"


def run_lines(agents: Iterable[AgentInfo]) -> list[str]:
    """Return the name and address of each run whose address is known, once for all of its nodes."""
    return list(dict.fromkeys(f"run {agent.run}: {agent.run_url}" for agent in agents if agent.run_url))


def plain_table(lines: Sequence[Row]) -> str:
    """Return headings and rows with aligned columns."""
    cells = [row.cells for row in lines]
    shown = columns_to_show(COLUMNS, cells)
    table = [[line[column] for column in shown] for line in (COLUMNS, *cells)]
    widths = [max(len(line[column]) for line in table) for column in range(len(shown))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
    )


def rich_table(lines: Sequence[Row], width: int) -> RenderableType:
    """Return rows as a rich table with one line for each; an empty group if the list is empty.

    Args:
        lines: The rows.
        width: Width of the terminal; `column_widths` decides what a narrow terminal shows.
    """
    from rich.console import Group  # noqa: PLC0415 - on a terminal only
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    if not lines:
        return Group()
    shown = column_widths(COLUMNS, [row.cells for row in lines], width)
    table = Table(box=None, pad_edge=False)
    for column, column_width in shown.items():
        table.add_column(COLUMNS[column], width=column_width, no_wrap=True, overflow="ellipsis")
    for row in lines:
        table.add_row(*(Text(row.cells[column]) for column in shown))
    return table


def as_json(agents: Sequence[AgentInfo]) -> dict[str, object]:
    """Return all fields of all targets and forwards; unknown fields are null.

    `state` is the state of the process and `holder` the user of its attachment; they are independent.
    """
    return {
        "time": time.time(),
        "targets": [
            {
                "agent": agent.id,
                "host": agent.host,
                "node_rank": agent.node_rank,
                "run": agent.run or None,
                "run_url": agent.run_url or None,
                "rank": target.rank,
                "world": target.world,
                "port": target.port,
                "pid": target.pid,
                "script": target.script or None,
                "state": target.state.value or None,
                "detail": target.detail or None,
                "since": target.since,
                "until": target.until,
                "holder": target.attachment.user if target.attachment else None,
                "held_since": target.attachment.since if target.attachment else None,
                "stopped": target.attachment.is_stopped if target.attachment else None,
                "stopped_at": (target.attachment.stopped_at or None) if target.attachment else None,
                "stopped_since": target.attachment.stopped_since if target.attachment else None,
                "resumed_since": target.attachment.resumed_since if target.attachment else None,
                "cpu": used.cpu if used else None,
                "memory": used.memory if used else None,
                "gpus": [asdict(share) for share in used.gpus] if used else [],
            }
            for agent in agents
            for target in agent.targets
            for used in [agent.usage.of(target.port) if agent.usage else None]
        ],
        "forwards": [
            {"agent": agent.id, "host": agent.host, "node_rank": agent.node_rank, "port": port}
            for agent in agents
            for port in agent.forwards
        ],
    }

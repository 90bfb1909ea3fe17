"""The table of all targets: as rows, as plain text, for a terminal, and as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from relay_client.ui.column_widths import column_widths, columns_to_show
from relay_client.ui.text import duration
from relay_client.ui.usage_cells import USAGE_COLUMNS, usage_cells
from relay_core.agent_api.announcement import AgentInfo, State, TargetInfo

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "COLUMNS",
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
STATE = COLUMNS.index("state")
ATTACHED = "attached"
"""Shown as the state of a process with a debugger if the agent does not announce whether the process is stopped."""


def by_node(agents: Iterable[AgentInfo]) -> list[AgentInfo]:
    """Return agents by node rank; agents without a node rank come last."""
    return sorted(agents, key=lambda agent: (agent.node_rank is None, agent.node_rank, agent.name))


def rows(agents: Sequence[AgentInfo], now: float) -> list[tuple[str, ...]]:
    """Return one row of `COLUMNS` for each target, and one for each agent without targets."""
    found: list[tuple[str, ...]] = []
    for agent in agents:
        found += [_row(agent, target, now) for target in sorted(agent.targets, key=lambda target: target.port)]
        if not agent.targets:
            forwards = ", ".join(map(str, agent.forwards))
            state = f"forwards {forwards}" if forwards else "no targets"
            found.append((_node(agent), "", "", "", "", state, "", *usage_cells(agent.usage), ""))
    return found


def most_important(
    lines: Sequence[tuple[str, ...]], limit: int
) -> tuple[list[tuple[str, ...]], Sequence[tuple[str, ...]]]:
    """Split rows into those that fit on a terminal and those that do not, each in their original order.

    Crashed and stopped processes take precedence over waiting processes, which take precedence over running processes.
    """
    if len(lines) <= limit:
        return list(lines), []
    order = sorted(range(len(lines)), key=lambda number: (_urgency(lines[number]), number))
    return [lines[number] for number in sorted(order[:limit])], [lines[number] for number in sorted(order[limit:])]


def summary(hidden: Sequence[tuple[str, ...]]) -> str:
    """Return a line that replaces the hidden rows: `... and 42 more: 40 running, 2 waiting`."""
    states = Counter(line[STATE].partition(" ")[0].rstrip(":") for line in hidden)
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common() if state)
    return f"... and {len(hidden)} more{f': {counts}' if counts else ''}"


def _urgency(line: tuple[str, ...]) -> int:
    """Return a smaller number for a row that is more important to the user."""
    state, held_by = line[STATE], line[-1]
    if state.startswith(("crashed", "stopped")):
        return 0
    if state != State.RUNNING.value:
        return 1
    return 2 if held_by else 3


def _row(agent: AgentInfo, target: TargetInfo, now: float) -> tuple[str, ...]:
    attached = target.attachment
    held = f"{attached.user}{_ago(attached.since, now, ', ')}" if attached else ""
    numbers = (target.rank, target.port, target.pid)
    rank, port, pid = ("" if number is None else str(number) for number in numbers)
    since = _ago(target.activity_since, now)
    used = usage_cells(agent.usage, target.port)
    return _node(agent), rank, port, pid, target.script, _state(target), since, *used, held


def _is_stopped(target: TargetInfo) -> bool:
    """Return whether a debugger has stopped a process that has not crashed."""
    return target.state is not State.CRASHED and target.attachment is not None and target.attachment.is_stopped is True


def _state(target: TargetInfo) -> str:
    """Return the state to display; while a debugger is attached, its user decides whether the process runs."""
    if target.attachment is not None and target.state is not State.CRASHED:
        return target.attachment.activity or ATTACHED
    return target.state.value + (f": {target.detail}" if target.detail else "")


def _node(agent: AgentInfo) -> str:
    return agent.host if agent.node_rank is None else f"{agent.node_rank} {agent.host}"


def _ago(since: float | None, now: float, before: str = "") -> str:
    return "" if since is None else f"{before}{duration(now - since)}"


def run_lines(agents: Iterable[AgentInfo]) -> list[str]:
    """Return the name and address of each run whose address is known, once for all of its nodes."""
    return list(dict.fromkeys(f"run {agent.run}: {agent.run_url}" for agent in agents if agent.run_url))


def plain_table(lines: Sequence[Sequence[str]]) -> str:
    """Return headings and rows with aligned columns."""
    shown = columns_to_show(COLUMNS, lines)
    table = [[line[column] for column in shown] for line in (COLUMNS, *lines)]
    widths = [max(len(line[column]) for line in table) for column in range(len(shown))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
    )


def rich_table(lines: Sequence[Sequence[str]], width: int) -> RenderableType:
    """Return rows as a rich table with one line for each; an empty group if the list is empty.

    Args:
        lines: Rows of `COLUMNS`.
        width: Width of the terminal; `column_widths` decides what a narrow terminal shows.
    """
    from rich.console import Group  # noqa: PLC0415 - on a terminal only
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    if not lines:
        return Group()
    shown = column_widths(COLUMNS, lines, width)
    table = Table(box=None, pad_edge=False)
    for column, column_width in shown.items():
        table.add_column(COLUMNS[column], width=column_width, no_wrap=True, overflow="ellipsis")
    for line in lines:
        table.add_row(*(Text(line[column]) for column in shown))
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

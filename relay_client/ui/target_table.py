"""The table of all targets: as rows, as plain text, and for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay_client.ranks.record import Node, Target
from relay_client.ranks.view import Kind
from relay_client.ui.text import duration
from relay_core.agent_api.usage import GpuShare, GpuUsage, NodeUsage
from relay_core.foreign import printable
from relay_core.value_parsers import format_ranges

if TYPE_CHECKING:
    from rich.console import RenderableType


# Resource usage of a process and its node as narrow table cells: ` 1.2` processors, `3.1G` of memory. No I/O.
#
# Cells in one column have the same width, so that columns do not move when numbers change.

USAGE_COLUMNS = ("cpu", "mem", "gpu", "node gpu")
WIDTH = 4
"""Number of characters in a number with its unit."""
UNITS = "BKMGTPE"
"""Powers of 1024."""
TEN, HUNDRED = 10, 100
"""Limits below which numbers have one decimal place: for bytes with a unit, and for processors."""
MAX_NUMBER = 999
"""Largest number in front of a unit, so that any announced number fits."""


def usage_cells(usage: NodeUsage | None, port: int | None = None) -> tuple[str, ...]:
    """Return one cell for each of `USAGE_COLUMNS`; unknown numbers are empty.

    Args:
        usage: The latest sample of the node; None without a monitor.
        port: The logical port of the process; None for a node without processes.
    """
    used = usage.of(port) if usage is not None and port is not None else None
    cells = ("", "", "") if used is None else (_processors(used.cpu), _bytes(used.memory), _shares(used.gpus))
    return *cells, _gpus(usage.gpus) if usage is not None else ""


def _processors(number: float) -> str:
    number = min(number, MAX_NUMBER)
    return (f"{number:.1f}" if round(number, 1) < HUNDRED else f"{number:.0f}").rjust(WIDTH)


def _bytes(number: float) -> str:
    power = 0
    while round(number) > MAX_NUMBER and power < len(UNITS) - 1:
        number, power = number / 1024, power + 1
    number = min(number, MAX_NUMBER)
    digits = f"{number:.1f}" if power and round(number, 1) < TEN else f"{number:.0f}"
    return f"{digits}{UNITS[power]}".rjust(WIDTH)


def _shares(shares: tuple[GpuShare, ...]) -> str:
    """Return the numbers of a process's GPUs, and the memory that it uses on them: `0  31G`, `0-3  98G`."""
    if not shares:
        return ""
    return f"{format_ranges(share.number for share in shares)} {_bytes(sum(share.memory for share in shares))}"


def _gpus(gpus: tuple[GpuUsage, ...]) -> str:
    """Return the average usage of a node's GPUs, and the total memory in use on them: ` 87% 3.1G`."""
    if not gpus:
        return ""
    busy = min(1.0, sum(gpu.busy for gpu in gpus) / len(gpus))
    return f"{f'{busy:.0%}'.rjust(WIDTH)} {_bytes(sum(gpu.memory for gpu in gpus))}"


# Decides which columns are shown on a terminal of a given width, and how wide they are. No I/O.
#
# no monitor             the monitor's columns are never shown
# everything fits        each column is as wide as its longest cell
# not everything fits    long columns are cut to `CUT_TO`; then empty and unimportant columns are omitted until the rest
#                        fits, and the remaining space goes to the columns that were cut
# still too wide         the first columns of `SHRINKING` are cut further

CUT_TO = {"state": 24, "node": 16, "held by": 18, "script": 16}
"""Widths of columns with long cells on a narrow terminal, the most important column first. `stopped at train.py:41`
and `crashed: ValueError: ...` are recognizable in 24 characters."""
LEAST_IMPORTANT = (*reversed(USAGE_COLUMNS), "pid", "script", "since", "port", "held by")
"""Columns that are omitted on a narrow terminal, in this order."""
SHRINKING = (("node", 4), ("state", 8), ("node", 1), ("state", 1))
"""Columns that are cut further, each with the smallest width in that step."""
GAP = 2
"""Space between columns, as `rich` draws it."""


def columns_to_show(names: Sequence[str], lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the numbers of all columns, without the monitor's columns if no agent has a monitor."""
    return [
        column for column, name in enumerate(names) if name not in USAGE_COLUMNS or any(line[column] for line in lines)
    ]


def column_widths(names: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """Return the width of each column to show, in their order.

    Args:
        names: The headings.
        lines: The cells of each row.
        width: Width of the terminal.
    """
    natural = {column: max(len(line[column]) for line in (names, *lines)) for column in columns_to_show(names, lines)}
    if _total(natural) <= width:
        return natural
    shown = {column: min(natural[column], CUT_TO.get(names[column], natural[column])) for column in natural}
    empty = [name for name in LEAST_IMPORTANT if not any(line[names.index(name)] for line in lines)]
    for name in dict.fromkeys([*empty, *LEAST_IMPORTANT]):
        if _total(shown) > width:
            shown.pop(names.index(name), None)
    for name in CUT_TO:
        if (column := names.index(name)) in shown:
            shown[column] += max(0, min(natural[column] - shown[column], width - _total(shown)))
    for name, least in SHRINKING:
        column = names.index(name)
        shown[column] -= max(0, min(shown[column] - least, _total(shown) - width))
    return shown


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


COLUMNS = ("node", "rank", "port", "pid", "script", "state", "since", *USAGE_COLUMNS, "held by")
MAX_STATE = 80
"""Maximum number of characters of a state, which may contain the whole text of an exception."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    cells: tuple[str, ...]
    """One text for each of `COLUMNS`."""
    kind: Kind | None = None
    """What the target is doing; None for an agent without targets."""
    is_attached: bool = False


def rows(nodes: Iterable[Node], now: float) -> list[Row]:
    """Return one row for each target, and one for each agent without targets.

    Args:
        nodes: The agents in the order of the table.
        now: The current Unix time.
    """
    found: list[Row] = []
    for node in nodes:
        found += [_row(node, target, now) for target in sorted(node.targets, key=lambda target: target.port)]
        if not node.targets:
            forwards = ", ".join(map(str, node.forwards))
            state = f"forwards {forwards}" if forwards else "no targets"
            found.append(Row((_node(node), "", "", "", "", state, "", *usage_cells(node.usage), "")))
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


def _row(node: Node, target: Target, now: float) -> Row:
    held = f"{target.who}{_ago(target.held_since, now, ', ')}" if target.holder else ""
    numbers = (target.rank, target.port, target.pid)
    rank, port, pid = ("" if number is None else str(number) for number in numbers)
    state, since = printable(target.text, MAX_STATE), _ago(target.since, now)
    used = usage_cells(node.usage, target.port)
    cells = (_node(node), rank, port, pid, target.script or "", state, since, *used, held)
    return Row(cells, Kind(target.kind), target.holder is not None)


def _node(node: Node) -> str:
    return node.host if node.node_rank is None else f"{node.node_rank} {node.host}"


def _ago(since: float | None, now: float, before: str = "") -> str:
    return "" if since is None else f"{before}{duration(now - since)}"


def run_lines(nodes: Iterable[Node]) -> list[str]:
    """Return the name and address of each run whose address is known, once for all of its nodes."""
    return list(dict.fromkeys(f"run {node.run}: {node.run_url}" for node in nodes if node.run_url))


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


def terminal_table(lines: Sequence[Row], width: int, *, color: bool) -> str:
    """Return rows as text with one line for each.

    Args:
        lines: The rows.
        width: Width of the terminal; without rich, the table may be wider.
        color: Whether the headings are bold.
    """
    try:
        from rich.console import Console  # noqa: PLC0415 - on a terminal only
    except ImportError:  # rich is optional
        return plain_table(lines)
    # A relay-client that answers a command is in another environment than the terminal of the command.
    console = Console(width=width, force_terminal=True, color_system="standard" if color else None, no_color=False)
    with console.capture() as captured:
        console.print(rich_table(lines, width))
    return captured.get().rstrip("\n")

"""Decides which columns are shown on a terminal of a given width, and how wide they are. No I/O.

no monitor             the monitor's columns are never shown
everything fits        each column is as wide as its longest cell
not everything fits    long columns are cut to `CUT_TO`; then empty and unimportant columns are omitted until the rest
                       fits, and the remaining space goes to the columns that were cut
still too wide         the first columns of `SHRINKING` are cut further
"""

from __future__ import annotations

from collections.abc import Sequence

from relay_client.ui.usage_cells import USAGE_COLUMNS

__all__ = ["GAP", "column_widths", "columns_to_show"]

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

"""What was measured, as a table for people and as JSON for programs."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

__all__ = ["Limit", "Row", "median_ms", "percentile", "print_rows", "to_json"]

Value = float | str
"""A figure, or in a word why there is none."""
WIDE = 140
"""Characters; a table that would be wider lies on its side."""


@dataclass(frozen=True)
class Limit:
    """What a figure must not exceed."""

    most: float
    of: Literal["value", "ratio"] = "value"
    """Whether the figure itself is meant, or how it compares with the first one."""

    def text(self, unit: str) -> str:
        """Return it as people read it."""
        return f"at most x{self.most:g}" if self.of == "ratio" else f"at most {self.most:g} {unit}"


@dataclass(frozen=True)
class Row:
    """One figure, beside its peers of the same run."""

    figure: str
    """The group it is printed in."""
    what: str
    unit: str
    values: dict[str, Value]
    """By peer; the first is what the others are divided by."""
    profile: str = "loopback"
    detail: dict[str, object] = field(default_factory=dict)
    """Goes into the JSON only."""
    limits: dict[str, Limit] = field(default_factory=dict)
    """By peer, for those that promise something."""

    def ratio(self, name: str) -> float | None:
        """Return a value divided by the first one."""
        first, value = next(iter(self.values.values())), self.values[name]
        if isinstance(first, str) or isinstance(value, str) or not first:
            return None
        return value / first

    def cell(self, name: str) -> str:
        """Return a value as text, with its ratio unless it is the first itself."""
        value = self.values.get(name, "")
        if isinstance(value, str):
            return value
        text = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        ratio = self.ratio(name)
        return text if ratio is None or name == next(iter(self.values)) else f"{text} ({_times(ratio)})"

    def met(self, name: str) -> bool | None:
        """Whether a peer stays within its limit; None without a limit or a figure."""
        limit, value = self.limits.get(name), self.values.get(name)
        if limit is None or not isinstance(value, (int, float)):
            return None
        found = value if limit.of == "value" else self.ratio(name)
        return None if found is None else found <= limit.most

    def verdicts(self) -> list[str]:
        """Return a line for each limit: who stays within, and who does not."""
        found: dict[Limit, list[str]] = {}
        for name, limit in self.limits.items():
            met = self.met(name)
            if met is not None:
                found.setdefault(limit, []).append(f"{name}: {'met' if met else 'MISSED, ' + self.cell(name)}")
        return [f"{self.what}, {limit.text(self.unit)}: {'; '.join(names)}" for limit, names in found.items()]


def _times(ratio: float) -> str:
    return f"x{ratio:.2f}" if 0.1 <= ratio < 10 else f"x{ratio:.2g}" if ratio < 1 else f"x{ratio:.0f}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that so many percent are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median_ms(seconds: Iterable[float]) -> float:
    """Return the median in milliseconds."""
    return 1000 * statistics.median(seconds)


def print_rows(rows: Sequence[Row], skipped: dict[str, str]) -> None:
    """Print a table for each figure and profile, and whether its limits are met."""
    for _, group in groupby(rows, key=lambda row: (row.figure, row.profile)):
        of_figure = list(group)
        _print_table(table(of_figure))
        for row in of_figure:
            for verdict in row.verdicts():
                print(verdict)
        print()
    for name, reason in skipped.items():
        print(f"not measured: {name}: {reason}")


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return the cells of one figure, line by line, heads first: the peers side by side, or below each other."""
    figure, profile = rows[0].figure, rows[0].profile
    title = figure if profile == "loopback" else f"{figure}, {profile}"
    peers = list(dict.fromkeys(name for row in rows for name in row.values))
    cells = [["unit", *(row.unit for row in rows)], *([name, *(row.cell(name) for row in rows)] for name in peers)]
    columns = [[title, *(row.what for row in rows)], *cells]
    lines = [list(line) for line in zip(*columns, strict=True)]
    return lines if sum(_widths(lines)) + 2 * len(columns) <= WIDE else columns


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _print_table(table: list[list[str]]) -> None:
    heads, *lines = table
    left = 2 if heads[1] == "unit" else 1
    """Columns of words; figures stand on the right of theirs."""
    if importlib.util.find_spec("rich") is not None and sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        rich_table = Table(*heads[:left])
        for head in heads[left:]:
            rich_table.add_column(head, justify="right")
        for line in lines:
            rich_table.add_row(*line)
        Console().print(rich_table)
        return
    widths = _widths(table)
    for line in [heads, ["-" * width for width in widths], *lines]:
        words = [text.ljust(width) for text, width in zip(line[:left], widths, strict=False)]
        figures = [text.rjust(width) for text, width in zip(line[left:], widths[left:], strict=True)]
        print("  ".join(words + figures).rstrip())


def to_json(rows: Sequence[Row], skipped: dict[str, str]) -> str:
    """Return everything, and on what it was measured."""
    machine = {"python": platform.python_version(), "system": platform.platform(), "cpus": _cpus()}
    figures = [
        {
            "figure": row.figure,
            "what": row.what,
            "profile": row.profile,
            "unit": row.unit,
            "values": row.values,
            "ratios": {name: row.ratio(name) for name in row.values},
            **({"limits": {name: _judged(row, name) for name in row.limits}} if row.limits else {}),
            **({"detail": row.detail} if row.detail else {}),
        }
        for row in rows
    ]
    return json.dumps({"machine": machine, "skipped": skipped, "figures": figures}, indent=2) + "\n"


def _judged(row: Row, name: str) -> dict[str, object]:
    limit = row.limits[name]
    return {"most": limit.most, "of": limit.of, "met": row.met(name)}


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

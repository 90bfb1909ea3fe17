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

__all__ = ["Row", "median_ms", "percentile", "print_rows", "to_json"]

Value = float | str
"""A figure, or in a word why there is none."""


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
        return text if ratio is None or name == next(iter(self.values)) else f"{text} (x{ratio:.2g})"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that so many percent are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median_ms(seconds: Iterable[float]) -> float:
    """Return the median in milliseconds."""
    return 1000 * statistics.median(seconds)


def print_rows(rows: Sequence[Row], skipped: dict[str, str]) -> None:
    """Print a table for each figure and profile."""
    for (figure, profile), group in groupby(rows, key=lambda row: (row.figure, row.profile)):
        lines = list(group)
        columns = list(dict.fromkeys(name for row in lines for name in row.values))
        heads = [figure if profile == "loopback" else f"{figure}, {profile}", "unit", *columns]
        _print_table(heads, [[row.what, row.unit, *map(row.cell, columns)] for row in lines])
    for name, reason in skipped.items():
        print(f"not measured: {name}: {reason}")


def _print_table(heads: list[str], lines: list[list[str]]) -> None:
    if importlib.util.find_spec("rich") is not None and sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(heads[0], heads[1])
        for head in heads[2:]:
            table.add_column(head, justify="right")
        for line in lines:
            table.add_row(*line)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    for line in [heads, ["-" * width for width in widths], *lines]:
        left, right = line[:2], line[2:]
        cells = [text.ljust(width) for text, width in zip(left, widths, strict=False)]
        print("  ".join(cells + [text.rjust(width) for text, width in zip(right, widths[2:], strict=True)]).rstrip())
    print()


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
            **({"detail": row.detail} if row.detail else {}),
        }
        for row in rows
    ]
    return json.dumps({"machine": machine, "skipped": skipped, "figures": figures}, indent=2) + "\n"


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

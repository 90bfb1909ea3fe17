"""The results of checks as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from relay_core.diagnosis.checks import Result, Status
from relay_core.value_parsers import escape_controls

__all__ = ["as_json", "as_text"]

COLUMNS = ("check", "result", "time", "finding")


def as_text(results: Sequence[Result]) -> str:
    """Return a table with aligned columns; the hint of a failure follows below its row."""
    rows = [COLUMNS, *((each.check, each.status.value, _duration(each.seconds), each.finding) for each in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS) - 1)]
    indent = " " * (sum(widths) + 2 * len(widths))
    lines = []
    for row, result in zip(rows, (None, *results), strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, escape_controls(row[-1])]).rstrip())
        if result is not None and result.hint and result.status is Status.FAILED:
            lines.append(f"{indent}-> {escape_controls(result.hint)}")
    return "\n".join(lines)


def as_json(results: Sequence[Result], exit_code: int) -> dict[str, object]:
    """Return the results and the exit code for `--json`."""
    return {"exit_code": exit_code, "checks": [each.encode() for each in results]}


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

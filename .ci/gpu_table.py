#!/usr/bin/env python3
"""Runs the tests in tests/gpu, and prints what was measured on which machine: `.ci/gpu_table.py [pytest arguments]`.

The table has one row for each test. A test records its figure with `record_property("figure", "3.2 s")`. The text is
Markdown; build/gpu.md contains it too. The exit status is pytest's.
"""

import datetime as dt
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

REPORT = Path("build/gpu.md")
LAST_START = 240
"""Seconds after which no further test starts, so that everything ends within six minutes."""
TEST_TIMEOUT = 90
"""Time limit of one test in seconds."""
VERSIONS = """\
import json, torch
nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else "none"
print(json.dumps({"torch": torch.__version__, "NCCL": nccl}))
"""
HEADER = ("test", "fact", "result", "s", "figure")


class Table:
    """A plugin that collects a row for each test; a test that was not reached has the result `not run`."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        """Cells by the id of the test."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Make a row for each selected test."""
        for item in session.items:
            text = getattr(getattr(item, "function", None), "__doc__", None) or ""
            fact = " ".join(text.partition("\n\n")[0].split())
            name = f"{Path(item.location[0]).stem.removeprefix('test_')}: {item.name.removeprefix('test_')}"
            self.rows[item.nodeid] = dict.fromkeys(HEADER, "") | {"test": name, "fact": fact, "result": "not run"}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a phase: the first failure, or else the result of the test itself."""
        row = self.rows[report.nodeid]
        if row["result"] in {"not run", "passed"} and (report.when == "call" or report.outcome != "passed"):
            row["result"] = report.outcome
        if report.outcome == "skipped":
            reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            row["figure"] = reason.removeprefix("Skipped: ")
        if report.when == "call":
            row["s"] = f"{report.duration:.1f}"
            row["figure"] = "; ".join(str(value) for name, value in report.user_properties if name == "figure")

    def as_text(self) -> str:
        """Return the table as Markdown, with columns of even width."""
        rows = [dict(zip(HEADER, HEADER, strict=True)), *self.rows.values()]
        cells = [[row[name].replace("|", r"\|").replace("\n", " ") for name in HEADER] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [_line(row, widths) for row in cells]
        return "\n".join([lines[0], _line(["-" * width for width in widths], widths), *lines[1:]])


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return f"| {' | '.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))} |"


def describe_machine() -> str:
    """Return the GPUs, the driver, the versions and the date, separated by commas."""
    gpus = printed("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    driver = printed("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").partition("\n")[0]
    found = json.loads(printed(sys.executable, "-c", VERSIONS) or '{"torch": "none", "NCCL": "none"}')
    parts = [f"{gpus.count(name)} {name}" for name in dict.fromkeys(gpus)] or ["no GPU"]
    parts += [f"driver {driver or 'none'}", f"{os.cpu_count()} cores", f"Python {platform.python_version()}"]
    parts += [f"{name} {version}" for name, version in found.items()]
    parts += [f"commit {printed('git', 'rev-parse', '--short', 'HEAD') or 'unknown'}"]
    return ", ".join([*parts, f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d}"])


def printed(*command: str) -> str:
    """Return what a command prints; "" if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def main(arguments: list[str]) -> int:
    """Run the tests, print the table, and return the exit status."""
    table = Table()
    limits = ["--timeout", str(TEST_TIMEOUT), "--session-timeout", str(LAST_START)]
    status = int(pytest.main([*limits, *(arguments or ["tests/gpu"])], plugins=[table]))
    text = f"{describe_machine()}\n\n{table.as_text()}\n"
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(text, encoding="utf-8")
    print(f"\n{text}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

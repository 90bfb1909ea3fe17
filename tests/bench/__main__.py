"""`python -m tests.bench` (`make bench`): the figures of docs/benchmarks.md, each beside its peers and all in one run.

Every program is a process of its own, started as users start it; targets and load generators are others. Machines are
noisy, so peers take turns, and their ratio is what counts. Each figure's module describes how it is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol

import psutil

from tests.bench.figures.all_ranks import all_ranks
from tests.bench.figures.asking import asking
from tests.bench.figures.attach import attach
from tests.bench.figures.capacity import capacity
from tests.bench.figures.comparing import comparing
from tests.bench.figures.death import death
from tests.bench.figures.discovery import discovery
from tests.bench.figures.ending import ending
from tests.bench.figures.families import families
from tests.bench.figures.first_byte import first_byte
from tests.bench.figures.footprint import footprint
from tests.bench.figures.frames import frames
from tests.bench.figures.idle import idle
from tests.bench.figures.interactive import interactive
from tests.bench.figures.load import load
from tests.bench.figures.monitor import monitor
from tests.bench.figures.opening import opening
from tests.bench.figures.outage import outage
from tests.bench.figures.overhead import overhead
from tests.bench.figures.ownership import ownership
from tests.bench.figures.page import page
from tests.bench.figures.push import push
from tests.bench.figures.resuming import resuming
from tests.bench.figures.stepping import stepping
from tests.bench.figures.strangers import strangers
from tests.bench.figures.throughput import throughput
from tests.bench.figures.values import values
from tests.bench.figures.verdict import verdict
from tests.bench.figures.vscode import vscode
from tests.bench.figures.watch import watch
from tests.bench.report import Row, print_rows, to_json
from tests.bench.stage import Stage, staged


class Figure(Protocol):
    """Measures on a stage."""

    __name__: str

    def __call__(self, stage: Stage, *, quick: bool) -> Awaitable[list[Row]]: ...


LOOPBACK: list[Figure] = [
    *(opening, stepping, interactive, throughput, resuming),
    *(
        all_ranks,
        comparing,
        outage,
        death,
        ending,
        ownership,
        footprint,
        frames,
        capacity,
        families,
        idle,
        load,
        overhead,
        values,
        verdict,
        asking,
        push,
        page,
        monitor,
        strangers,
        watch,
    ),
]
WITH_DELAYS: list[Figure] = [
    *(opening, first_byte, attach, stepping, all_ranks, throughput, resuming),
    *(outage, death, ending, discovery, families, verdict, asking, watch, vscode),
]
PROFILES = {"loopback": LOOPBACK, "Azure-like delays": WITH_DELAYS}


async def measure(only: set[str], *, quick: bool) -> tuple[list[Row], dict[str, str]]:
    """Return what was measured, and what could not be."""
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    for profile, figures in PROFILES.items():
        wanted = [figure for figure in figures if not only or figure.__name__ in only]
        if not wanted:
            continue
        async with staged(delays=profile != "loopback") as stage:
            for figure in wanted:
                started, before = time.monotonic(), psutil.cpu_times()
                measured = await figure(stage, quick=quick)
                rows += [dataclasses.replace(row, profile=profile) for row in measured]
                _say(f"{figure.__name__}, {profile}: {time.monotonic() - started:.0f} s{_stolen_since(before)}")
            skipped |= stage.skipped
    return rows, skipped


def main(argv: list[str]) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measures relay-debug beside its peers.")
    parser.add_argument("--quick", action="store_true", help="less of everything, in a few minutes")
    names = sorted({figure.__name__ for figures in PROFILES.values() for figure in figures})
    parser.add_argument("--only", action="append", choices=names, default=[], help="one figure; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything there")
    arguments = parser.parse_args(argv)
    rows, skipped = asyncio.run(measure(set(arguments.only), quick=arguments.quick))
    print_rows(rows, skipped)
    if arguments.json:
        arguments.json.write_text(to_json(rows, skipped))
    return 0


def _stolen_since(before: Any) -> str:
    """Return a note on the processor time that the host gave to other virtual machines, where the system reports it."""
    spent = {name: now - then for name, now, then in zip(before._fields, psutil.cpu_times(), before, strict=True)}
    wanted = sum(seconds for name, seconds in spent.items() if name not in ("idle", "iowait", "guest", "guest_nice"))
    stolen = spent.get("steal", 0.0) / wanted if wanted else 0.0
    return f", {stolen:.0%} of the processor time stolen by the host" if stolen >= 0.01 else ""


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A step in a real debugpy (`python -m tests.bench.steps`).

It is timed from the `next` request to the `stopped` event, until an editor has what it shows then (the threads, the
topmost frame, its scopes and variables, requested one by one), and with the rest of the call stack; that in steps
before which the editor pauses, so that processors have to wake up. The time of its requests alone leaves out the one in
which the line runs: from the answer to `next` until `stopped`.

A direct connection is not the fastest: debugpy's adapter waits 40 ms in each step for an acknowledgement, which agents
give at once. So there is one more peer, "direct, prompt", whose client does that too: what debugpy itself needs. What a
way adds is measured against that one.
"""

from __future__ import annotations

from tests.bench.programs import lines_of, python_json
from tests.bench.report import Limit, Row, median_ms
from tests.bench.stage import Stage

__all__ = ["start_debuggee", "stepping"]

Times = dict[str, dict[str, list[float]]]
"""Seconds by kind and way."""

FIGURE = "DAP step"
PROMPT = "direct, prompt"
KINDS = {
    "steps": ("next until stopped", False),
    "shown": ("until an editor shows the variables", True),
    "requests": ("of that, its five requests until they are answered", True),
    "whole": ("and the rest of the call stack, after a pause", True),
    "all requests": ("of that, its six requests until they are answered", True),
}
"""What is printed of each kind of time, and whether it has a limit."""
THREADS = 8
"""Beside the one that is stepped through, in one more figure."""
UNNOTICED = Limit(10)
"""Milliseconds for all requests of a step together, where no network is between."""


async def stepping(stage: Stage, *, quick: bool) -> list[Row]:
    """Debug the same process in each of the ways, one by one, in one or more rounds."""
    ways = await stage.ways_to(await start_debuggee(stage))
    sessions = {name: (way.port, "") for name, way in ways.items()}
    if not stage.delays:
        sessions[PROMPT] = (ways["direct"].port, "prompt")
    found: Times = {kind: {name: [] for name in sessions} for kind in KINDS}
    count, turns = (15, 1 if quick else 6) if not stage.delays else (4 if quick else 12, 1)
    for _ in range(turns):
        for name, (port, how) in sessions.items():
            result = await python_json("tests.bench.steps", port, count, how)
            for kind, by_way in found.items():
                by_way[name] += result[kind]
    rows = [*rows_of(found), await _with_watches(stage, count, turns)]
    return rows if stage.delays else [*rows, await _among_threads(stage, turns)]


async def _with_watches(stage: Stage, count: int, turns: int) -> Row:
    """A step of an editor that also evaluates three watch expressions, after which it asks for the variables."""
    ways = await stage.ways_to(await start_debuggee(stage), "direct", "tunnel")
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            found[name] += (await python_json("tests.bench.steps", way.port, count, "watch"))["shown"]
    values = {name: median_ms(seconds) for name, seconds in found.items()}
    figure = f"{FIGURE} with three watch expressions"
    return Row(figure, "until an editor shows the variables", "ms", values, detail={"seconds": found})


async def _among_threads(stage: Stage, turns: int) -> Row:
    """A step in a job with other threads, which are stopped and woken with the one that is stepped through."""
    ports = {
        "plain debugpy": await start_debuggee(stage, THREADS, "plain"),
        "direct": await start_debuggee(stage, THREADS),
    }
    ports["tunnel"] = (await stage.ways_to(ports["direct"], "tunnel"))["tunnel"].port
    found: dict[str, list[float]] = {name: [] for name in ports}
    for _ in range(turns):
        for name, port in ports.items():
            found[name] += (await python_json("tests.bench.steps", port, 15, ""))["shown"]
    values = {name: median_ms(seconds) for name, seconds in found.items()}
    figure = f"{FIGURE} beside {THREADS} threads"
    return Row(figure, "until an editor shows the variables", "ms", values, detail={"seconds": found})


async def start_debuggee(stage: Stage, *how: object) -> int:
    """Return the port of a new process to debug."""
    child = await stage.programs.python("debuggee", "tests.bench.debuggee", *map(str, how))
    printed = await lines_of(child, lambda text: any(map(str.isdigit, text.splitlines())))  # debugpy may warn before
    return next(int(line) for line in printed.splitlines() if line.isdigit())


def rows_of(found: Times) -> list[Row]:
    """Return the medians, and what each way adds to debugpy's own time if that is known."""
    medians = {kind: {name: median_ms(times) for name, times in by_way.items()} for kind, by_way in found.items()}
    whole = medians["whole"]
    limits = {"tunnel": UNNOTICED} if PROMPT in whole else {}
    rows = [
        Row(FIGURE, what, "ms", medians[kind], limits=limits if is_judged else {}, detail={"seconds": found[kind]})
        for kind, (what, is_judged) in KINDS.items()
    ]
    if PROMPT in whole:
        added = {name: whole[name] - whole[PROMPT] for name in whole if name not in {"direct", PROMPT}}
        rows.append(Row(FIGURE, "the whole step: added to what debugpy needs", "ms", added, limits=limits))
    return rows

"""A step in a real debugpy (`python -m tests.bench.steps`).

It is timed from the `next` request to the `stopped` event, until an editor has what it shows then (the threads, the
topmost frame, its scopes and variables, asked one after the other), and with the rest of the call stack.

A direct connection is not the fastest: debugpy's adapter waits 40 ms in each step for an acknowledgement, which agents
give at once. So there is one more peer, "direct, prompt", whose client does that too: what debugpy itself needs. What a
way adds is measured against that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.bench.programs import lines_of, python_json
from tests.bench.report import Limit, Row, median_ms
from tests.bench.stage import Stage

__all__ = ["stepping"]

PROMPT = "direct, prompt"
UNNOTICED = Limit(10)
"""Milliseconds for all requests of a step together, where no network is between."""


async def stepping(stage: Stage, *, quick: bool) -> list[Row]:
    """The ways debug the same process, one after the other and again."""
    debuggee = await stage.programs.python("debuggee", "tests.bench.debuggee")
    ways = await stage.ways_to(int((await lines_of(debuggee)).split()[0]))
    sessions = {name: (way.port, "") for name, way in ways.items()}
    if not stage.delays:
        sessions[PROMPT] = (ways["direct"].port, "prompt")
    found: dict[str, dict[str, list[float]]] = {kind: {n: [] for n in sessions} for kind in ("steps", "shown", "whole")}
    count, turns = (15, 1 if quick else 6) if not stage.delays else (4 if quick else 12, 1)
    for _ in range(turns):
        for name, (port, how) in sessions.items():
            result = await python_json("tests.bench.steps", port, count, how)
            for kind, seconds in found.items():
                seconds[name] += result[kind]
    return rows_of(**found)


def rows_of(
    steps: Mapping[str, Sequence[float]], shown: Mapping[str, Sequence[float]], whole: Mapping[str, Sequence[float]]
) -> list[Row]:
    """Return the medians, and what each way adds to debugpy's own time if that is known."""
    together = {name: median_ms(seconds) for name, seconds in whole.items()}
    limits = {"tunnel": UNNOTICED} if PROMPT in together else {}
    rows = [
        Row("DAP step", "next until stopped", "ms", {name: median_ms(seconds) for name, seconds in steps.items()}),
        Row(
            "DAP step",
            "until an editor shows the variables",
            "ms",
            {name: median_ms(seconds) for name, seconds in shown.items()},
            limits=limits,
        ),
        Row(
            "DAP step",
            "and the rest of the call stack",
            "ms",
            dict(together),
            limits=limits,
            detail={"seconds": dict(whole)},
        ),
    ]
    if PROMPT in together:
        added = {name: together[name] - together[PROMPT] for name in together if name not in {"direct", PROMPT}}
        rows.append(Row("DAP step", "of that, added to what debugpy needs", "ms", added, limits=limits))
    return rows

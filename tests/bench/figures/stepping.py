"""A step in a real debugpy (`python -m tests.bench.steps`).

It is timed from the `next` request to the `stopped` event, and with all that VS Code asks then, one after the other:
the threads, the topmost frame, the others, the scopes and the variables.

A direct connection is not the fastest: debugpy's adapter waits 40 ms in each step for an acknowledgement, which agents
give at once. So there is one more peer, "direct, prompt", whose client does that too: what debugpy itself needs. What a
way adds is measured against that one.
"""

from __future__ import annotations

import dataclasses
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
    steps: dict[str, list[float]] = {name: [] for name in sessions}
    whole: dict[str, list[float]] = {name: [] for name in sessions}
    count, turns = (15, 1 if quick else 6) if not stage.delays else (4 if quick else 12, 1)
    for _ in range(turns):
        for name, (port, how) in sessions.items():
            result = await python_json("tests.bench.steps", port, count, how)
            steps[name] += result["steps"]
            whole[name] += result["whole"]
    return rows_of(steps, whole)


def rows_of(steps: Mapping[str, Sequence[float]], whole: Mapping[str, Sequence[float]]) -> list[Row]:
    """Return the medians, and what each way adds to debugpy's own time if that is known."""
    together = {name: median_ms(seconds) for name, seconds in whole.items()}
    rows = [
        Row("DAP step", "next until stopped", "ms", {name: median_ms(seconds) for name, seconds in steps.items()}),
        Row("DAP step", "with all that an editor asks then", "ms", dict(together), detail={"seconds": dict(whole)}),
    ]
    if PROMPT not in together:
        return rows
    limits = {"tunnel": UNNOTICED}
    added = {name: together[name] - together[PROMPT] for name in together if name not in {"direct", PROMPT}}
    return [
        rows[0],
        dataclasses.replace(rows[1], limits=limits),
        Row("DAP step", "of that, added to what debugpy needs", "ms", dict(added), limits=limits),
    ]

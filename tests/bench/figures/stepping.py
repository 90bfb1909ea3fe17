"""A step in a real debugpy (`python -m tests.bench.steps`).

It is timed from the `next` request to the `stopped` event, and as an editor does it: then the stack, the scopes and the
variables, one after the other.
"""

from __future__ import annotations

from tests.bench.programs import lines_of, python_json
from tests.bench.report import Row, median_ms
from tests.bench.stage import Stage

__all__ = ["stepping"]


async def stepping(stage: Stage, *, quick: bool) -> list[Row]:
    """The ways debug the same process, one after the other and again."""
    debuggee = await stage.programs.python("debuggee", "tests.bench.debuggee")
    ways = await stage.ways_to(int((await lines_of(debuggee)).split()[0]))
    steps: dict[str, list[float]] = {name: [] for name in ways}
    whole: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 if quick else 3):
        for name, way in ways.items():
            result = await python_json("tests.bench.steps", way.port, 15 if quick else 40)
            steps[name] += result["steps"]
            whole[name] += result["whole"]
    return [
        Row("DAP step", "next until stopped", "ms", {name: median_ms(steps[name]) for name in ways}),
        Row("DAP step", "with stack, scopes, variables", "ms", {name: median_ms(whole[name]) for name in ways}),
    ]

"""The same loop of Python in jobs that differ in how they can be debugged (`python -m tests.bench.training HOW`)."""

from __future__ import annotations

from tests.bench.programs import python_json
from tests.bench.report import Row
from tests.bench.stage import Stage
from tests.bench.training import JOBS

__all__ = ["training"]


async def training(stage: Stage, *, quick: bool) -> list[Row]:
    """The jobs take turns; the best turn counts."""
    relay = [stage.relay.connection_file("agent"), stage.relay.ca_file]
    times: dict[str, list[float]] = {name: [] for name in JOBS}
    for _ in range(1 if quick else 5):
        for name in JOBS:
            times[name].append(await python_json("tests.bench.training", name, *relay))
    values = {name: 1000 * min(found) for name, found in times.items()}
    return [Row("training loop", "the same work, nobody attached", "ms", dict(values), detail={"seconds": times})]

"""A job that trains for as many seconds as each line of stdin has, and prints the seconds of a step; one thread."""

from __future__ import annotations

import json
import sys
import time

__all__: list[str] = []


def _step() -> int:
    """Compute for about a millisecond."""
    return sum(number * number for number in range(15_000))


def _train(seconds: float) -> float:
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        _step()
        steps += 1
    return (time.perf_counter() - started) / steps


if __name__ == "__main__":
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(_train(float(line))), flush=True)

"""Step 1, a command: write CSV files with random points in a square, each labelled as inside or outside a circle."""

import argparse
import csv
import math
import random
from pathlib import Path

import relay_agent


def draw(count: int, rng: random.Random) -> list[tuple[float, float, int]]:
    """Return points as x, y, and 1 if inside the circle or 0 if outside."""
    places = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(count)]
    return [(x, y, int(math.hypot(x, y) < 0.7)) for x, y in places]


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, required=True, help="number of files")
    parser.add_argument("--points", type=Path, required=True, help="folder for these files")
    relay_agent.add_debug_arguments(parser)
    options = parser.parse_args()

    relay_agent.start_remote_debugging_from_args()

    rng = random.Random(7)  # noqa: S311 - every run must draw the same numbers
    options.points.mkdir(parents=True, exist_ok=True)
    for number in range(options.files):
        points = draw(100, rng)
        with (options.points / f"part-{number:02}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(points)
    print(f"prepare: wrote {options.files} files")


if __name__ == "__main__":
    main()

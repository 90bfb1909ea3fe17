"""A job without any code for debugging: estimate pi from random points in a square."""

import argparse
import random


def throw(count: int, rng: random.Random) -> int:
    """Draw random points in the square, and return how many are inside the circle."""
    return sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(count))


def main() -> None:
    """Print an estimate of pi after each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    rng, hits = random.Random(7), 0  # noqa: S311 - every run must draw the same numbers
    for number in range(1, options.rounds + 1):
        hits += throw(20_000, rng)
        print(f"round {number}: pi is about {4 * hits / (number * 20_000):.4f}", flush=True)


if __name__ == "__main__":
    main()

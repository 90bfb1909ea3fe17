"""Computes the square root of a number slowly, with Newton's method.

This file contains no code for debugging.
"""

import sys
import time


def improve(guess: float, number: float) -> float:
    """Return a better guess."""
    quotient = number / guess
    return (guess + quotient) / 2


def main() -> None:
    """Print each guess."""
    number = float(sys.argv[1]) if sys.argv[1:] else 2.0
    guess = 1.0
    for step in range(1, 21):
        guess = improve(guess, number)
        print(f"step {step}: {guess:.6f}", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()

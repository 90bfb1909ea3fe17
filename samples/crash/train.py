"""Fits a line to the readings of a sensor, one of which is invalid: the seventh step raises an exception.

This file contains no code for debugging.
"""


def read(step: int) -> list[str]:
    """Return the readings of one step."""
    readings = [f"{place / 10};{place / 5 + 1}" for place in range(10)]
    if step == 7:
        readings[4] = "0.4;n/a"
    return readings


def train_step(slope: float, offset: float, step: int) -> tuple[float, float]:
    """Return a slope and an offset that fit this step's readings better than the given ones."""
    for reading in read(step):
        place, value = map(float, reading.split(";"))
        error = slope * place + offset - value
        slope, offset = slope - 0.1 * error * place, offset - 0.1 * error
    return slope, offset


def main() -> None:
    """Train, and print the fitted line after each step."""
    slope, offset = 0.0, 0.0
    for step in range(1, 21):
        slope, offset = train_step(slope, offset, step)
        print(f"step {step}: y = {slope:.2f} x + {offset:.2f}", flush=True)


if __name__ == "__main__":
    main()

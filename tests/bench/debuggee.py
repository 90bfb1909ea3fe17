"""A process to step through: prints the port of its debugger, as the job side of this project starts it."""

from __future__ import annotations

import time

from relay_agent import debuggee

STEPS = ("total += 1", "total -= 1")
"""The lines that a debugger goes to and fro between."""


def work() -> None:
    """Loop over a few cheap lines until somebody ends the process."""
    total = 0
    while True:
        total += 1
        total -= 1
        if not debuggee.is_attached():
            time.sleep(0.01)


if __name__ == "__main__":
    print(debuggee.arm(), flush=True)
    work()

"""A process to step through: prints the port of its debugger and runs.

python -m tests.bench.debuggee                   started as the job side of this project starts it
python -m tests.bench.debuggee THREADS           beside so many other threads
python -m tests.bench.debuggee THREADS plain     with `debugpy.listen` alone
"""

from __future__ import annotations

import sys
import threading
import time

import debugpy

from relay_agent.debuggee.debugger import debugger

STEPS = ("total += 1", "total -= 1")
"""The lines that a debugger goes to and fro between."""


def work() -> None:
    """Loop over a few cheap lines until somebody ends the process."""
    total = 0
    while True:
        total += 1
        total -= 1
        if not debugger.is_attached():
            time.sleep(0.01)


def stand_by() -> None:
    """Do next to nothing, as threads that load data or write logs."""
    while True:
        time.sleep(0.01)


def main(threads: int = 0, how: str = "") -> None:
    """Start the threads and the debugger, and work."""
    for _ in range(threads):
        threading.Thread(target=stand_by, daemon=True).start()
    port = debugpy.listen(("127.0.0.1", 0))[1] if how == "plain" else debugger.arm()
    print(port, flush=True)
    work()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])

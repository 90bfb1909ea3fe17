"""A training loop in plain Python, and the ways a job can be prepared for a debugger: prints the loop's seconds.

python -m tests.bench.training JOB CONNECTION_FILE CA_FILE
"""

from __future__ import annotations

import sys
import time

STEPS = 1_500_000
SETTLE = 2.0
"""Seconds before the loop begins: what starts beside the job has then started."""


def unprepared() -> None:
    """A job that knows nothing of debugging."""


def not_a_debug_run() -> None:
    """The job calls us, and its command line does not ask for debugging."""
    import relay_agent

    relay_agent.start_remote_debugging_from_args([])


def armed() -> None:
    """The job can be attached to at any time, through the relay."""
    import relay_agent

    file, ca_file = sys.argv[2:4]
    relay_agent.start_remote_debugging("bench", wait=0, connection_string_file=file, ca_file=ca_file)


def debugpy_listen() -> None:
    """The job calls debugpy itself."""
    import debugpy

    debugpy.listen(("127.0.0.1", 0))


JOBS = {
    "unprepared": unprepared,
    "not a debug run": not_a_debug_run,
    "debugpy.listen": debugpy_listen,
    "armed": armed,
}


def train() -> float:
    """Some calls, some arithmetic."""
    weight = 0.0
    for step in range(STEPS):
        weight += gradient(weight, step)
    return weight


def gradient(weight: float, step: int) -> float:
    """One step's work."""
    error = weight - step % 7
    return -0.01 * error


if __name__ == "__main__":
    JOBS[sys.argv[1]]()
    time.sleep(SETTLE)
    started = time.perf_counter()
    train()
    print(time.perf_counter() - started, flush=True)

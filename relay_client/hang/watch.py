"""Checks jobs at intervals, and reports those that have made no progress for a given time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from relay_client.agents.tunnels import Tunnels
from relay_client.hang.examine import examine_once
from relay_client.hang.verdict import JobVerdict, positions

__all__ = ["Progress", "watch"]

MIN_INTERVAL = 0.5
MAX_INTERVAL = 10.0
"""Limits of the interval between two checks, in seconds; each check costs a rank up to 20 ms of CPU time."""
CHECKS = 10
"""Number of checks within `patience`, unless the limits of the interval require fewer or more."""


class Progress:
    """Tracks the progress of jobs: if a job hangs, ranks wait in a collective, and none enters or completes another.

    Args:
        patience: Seconds without progress after which a job is reported.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._jobs: dict[int, tuple[Mapping[tuple[int, str, str], tuple[int, int]], float]] = {}
        """By base port: the positions of the job's ranks, and since when these have not changed."""
        self._reported: set[int] = set()

    def __repr__(self) -> str:
        return f"<Progress jobs={len(self._jobs)} reported={len(self._reported)}>"

    def verdicts_due(self, verdicts: Sequence[JobVerdict], now: float) -> list[JobVerdict]:
        """Return the jobs that have begun to hang; a job is returned only once until it makes progress again.

        Args:
            verdicts: The current verdicts on all jobs.
            now: Monotonic time.
        """
        due = []
        for verdict in verdicts:
            port, current = verdict.job.base_port, dict(positions(verdict.job.ranks))
            known, since = self._jobs.get(port, ({}, now))
            if current != known or not verdict.is_hanging:
                since = now
                self._reported.discard(port)
            self._jobs[port] = current, since
            if now - since >= self._patience and port not in self._reported:
                self._reported.add(port)
                due.append(verdict)
        return due


async def watch(
    tunnels: Tunnels, ports: Collection[int] | None, patience: float, report: Callable[[Sequence[JobVerdict]], None]
) -> None:
    """Check jobs until cancelled.

    Args:
        tunnels: The client's tunnels.
        ports: Logical ports of the jobs; None for all.
        patience: Seconds without progress after which a job is reported.
        report: Called with the jobs that have begun to hang.
    """
    progress = Progress(patience)
    while True:
        verdicts = await examine_once(tunnels, ports)
        if due := progress.verdicts_due(verdicts, time.monotonic()):
            report(due)
        await asyncio.sleep(max(MIN_INTERVAL, min(MAX_INTERVAL, patience / CHECKS)))

"""Examines all jobs: asks all agents, again as long as ranks may be waiting only briefly, and at intervals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from relay_client.agents.requests import NodeReply, reply_of
from relay_client.agents.tunnels import Tunnels
from relay_client.hang.reports import read_jobs
from relay_client.hang.verdict import MIN_AGE, JobVerdict, positions
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.questions import ReadCollectives
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError

logger = logging.getLogger(__name__)


# Asks all agents for the process groups and main threads of their processes, with the same deadline for each.

DEADLINE = 5.0
"""Seconds to wait for an agent's response; the agent waits less time for its processes and for NCCL RAS."""
RETRY_INTERVAL = 0.1
"""Seconds between attempts while the tunnel to an agent is interrupted."""


async def collect_replies(tunnels: Tunnels, *, within: float = DEADLINE) -> list[NodeReply]:
    """Return, within `within` seconds, the response of each known agent, or the reason why there is none."""
    return list(await asyncio.gather(*(_reply_of(agent, tunnels, within) for agent in tunnels.roster)))


async def _reply_of(agent: AgentInfo, tunnels: Tunnels, within: float) -> NodeReply:
    reply, question = NodeReply(agent, error=f"did not answer within {within:g} s"), ReadCollectives()
    with contextlib.suppress(*TIMEOUT_ERRORS):
        async with timeout(within):
            while (reply := await reply_of(tunnels, agent, question, 2 * within)).is_lost:  # noqa: ASYNC110 - it asks again
                await asyncio.sleep(RETRY_INTERVAL)
            if reply.error:
                return replace(reply, error=f"failed: {reply.error}")
    return reply


# Examines all jobs once, and again as long as ranks may be waiting only briefly.


async def examine_once(tunnels: Tunnels, ports: Collection[int] | None) -> list[JobVerdict]:
    """Return the current verdict on each job.

    Args:
        tunnels: The client's tunnels, which know all agents.
        ports: Logical ports of the jobs; None for all.
    """
    return [JobVerdict.of(job) for job in read_jobs(await collect_replies(tunnels), ports)]


async def examine(tunnels: Tunnels, ports: Collection[int] | None) -> list[JobVerdict]:
    """Return the verdict on each job, without waits that are only brief in a job that is making progress."""
    loop = asyncio.get_running_loop()
    found = await examine_once(tunnels, ports)
    ends = loop.time() + max((verdict.patience for verdict in found), default=0.0)
    while any(verdict.patience for verdict in found) and loop.time() < ends:
        await asyncio.sleep(MIN_AGE)
        before = {verdict.job.base_port: verdict for verdict in found}
        found = [
            verdict.that_still_wait(earlier) if (earlier := before.get(verdict.job.base_port)) is not None else verdict
            for verdict in await examine_once(tunnels, ports)
        ]
    return found


# Checks jobs at intervals, and reports those that have made no progress for a given time.

MIN_INTERVAL = 0.5
MAX_INTERVAL = 10.0
"""Limits of the interval between two checks, in seconds; each check costs a rank up to 20 ms of CPU time."""
CHECKS = 10
"""Number of checks within `patience`, unless the limits of the interval require fewer or more."""


def progress_of(verdict: JobVerdict) -> dict[str, Any]:
    """Return how far a job has progressed, as a JSON object: in each group, what each rank has begun and completed."""
    counts = [[*key, *numbers] for key, numbers in positions(verdict.job.ranks).items()]
    return {"base_port": verdict.job.base_port, "hanging": verdict.is_hanging, "counts": counts}


def interval_for(patience: float) -> float:
    """Return the seconds between two checks of jobs that are reported after `patience` seconds without progress."""
    return max(MIN_INTERVAL, min(MAX_INTERVAL, patience / CHECKS))


class Progress:
    """Tracks the progress of jobs: if a job hangs, ranks wait in a collective, and none enters or completes another.

    Args:
        patience: Seconds without progress after which a job is reported.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._jobs: dict[int, tuple[object, float]] = {}
        """By base port: the counts of the job's ranks, and since when these have not changed; infinity if reported."""

    def due(self, jobs: Sequence[Mapping[str, Any]], now: float) -> list[int]:
        """Return which jobs have begun to hang; a job is returned only once until it makes progress again.

        Args:
            jobs: What `progress_of` returns for each job.
            now: Monotonic time.
        """
        due = []
        for number, job in enumerate(jobs):
            port = job["base_port"]
            known, since = self._jobs.get(port, (None, now))
            if job["counts"] != known or not job["hanging"]:
                since = now
            if now - since >= self._patience:
                since = math.inf
                due.append(number)
            self._jobs[port] = job["counts"], since
        return due


async def watch(
    look: Callable[[], Awaitable[Mapping[str, Any]]], patience: float, report: Callable[[Mapping[str, Any]], None]
) -> NoReturn:
    """Check jobs until cancelled.

    Args:
        look: Returns the `data` of an answer to `Hang` with `once`.
        patience: Seconds without progress after which a job is reported.
        report: Called with the `data` of jobs that have begun to hang.

    Raises:
        RelayDebugError: the first check has failed, or an error is permanent.
    """
    progress = Progress(patience)
    found = await look()
    while True:
        if due := progress.due(found["progress"], time.monotonic()):
            report({"jobs": [found["jobs"][number] for number in due]})
        await asyncio.sleep(interval_for(patience))
        try:
            found = await look()
        except RelayDebugError as error:  # for example, the job has ended: another one may start
            if not error.retryable:
                raise
            logger.debug("no job is watched: %s", error)
            found = {"jobs": [], "progress": []}

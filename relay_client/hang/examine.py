"""Examines all jobs once, and again as long as ranks may be waiting only briefly."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from relay_client.agents.tunnels import Tunnels
from relay_client.hang.collect import collect_replies
from relay_client.hang.reports import read_jobs
from relay_client.hang.verdict import MIN_AGE, JobVerdict

__all__ = ["examine", "examine_once"]


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

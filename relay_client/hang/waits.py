"""Finds out which ranks wait in a collective operation, and for whom, so that all views of ranks show it.

At intervals, each process is asked how many operations it has begun: numbers that torch has, not an operation. Only if
ranks of a job have begun different numbers and none begins another until the next answer, the job is examined as
`relay-client hang` does: once for each such wait, in which its ranks are idle anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import NoReturn

from relay_client.agents.requests import ask_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.hang.examine import examine_once
from relay_client.hang.verdict import MIN_AGE, POINT_TO_POINT, JobVerdict
from relay_client.ui.text import format_ranks
from relay_core.agent_api.announcement import AgentId
from relay_core.agent_api.collectives import Progress
from relay_core.agent_api.questions import ReadProgress
from relay_core.errors import ConnectionLost, NoListener
from relay_core.foreign import printable
from relay_core.net.tasks import first_completed

INTERVAL = 2.0
"""Seconds between two questions while a rank is held or waits; in a healthy job, a rank waits less for another one."""
IDLE_INTERVAL = 10.0
"""Seconds otherwise: an idle client should cost little. If ranks have begun different numbers, they are asked once more
after `INTERVAL`."""
SETTLING = 0.5
"""Seconds from the first new agent to a look, so that the agents of all nodes, found in a row, are asked only once."""


class Waits:
    """The ranks of all jobs that wait.

    Args:
        tunnels: The client's tunnels, which receive the result.
    """

    def __init__(self, tunnels: Tunnels) -> None:
        self._tunnels = tunnels
        self._answers: dict[int, dict[int, Progress]] = {}
        """The last answers, by base port and port."""
        self._found: dict[int, Mapping[int, str]] = {}
        """The waits, by base port, of jobs that have been examined and have not moved since."""

    async def keep(self) -> NoReturn:
        """Look at intervals, and as soon as agents become known, until cancelled."""
        is_soon, known = False, frozenset[AgentId]()
        while True:
            before, known = known, self._agents()
            await self.look(is_only=not known <= before)
            is_held = any(target.is_held for agent in self._tunnels.roster for target in agent.targets)
            may_begin = not is_soon and any(map(may_wait, self._answers.values()))
            is_soon = is_held or bool(self._found) or may_begin
            await self._until_due(known, INTERVAL if is_soon else IDLE_INTERVAL)

    async def _until_due(self, known: frozenset[AgentId], seconds: float) -> None:
        """Wait `seconds`, or until shortly after an agent that is not `known` has become known."""
        time = asyncio.get_running_loop().time
        ends = time() + seconds
        while (left := ends - time()) > 0 and self._agents() <= known:
            await first_completed(self._tunnels.search.changed.wait(), timeout=left)
        await asyncio.sleep(min(max(ends - time(), 0.0), SETTLING))

    def _agents(self) -> frozenset[AgentId]:
        return frozenset(agent.id for agent in self._tunnels.roster)

    async def look(self, *, is_only: bool = False) -> None:
        """Ask all processes of jobs with several ranks, and examine the jobs that may wait.

        Args:
            is_only: True to examine a job although it may be making progress, because there is no other look.
        """
        targets = [target for agent in self._tunnels.roster for target in agent.targets if (target.world or 0) > 1]
        before, self._answers = self._answers, {}
        with contextlib.suppress(ConnectionLost, NoListener):
            for reply in await ask_ranks(self._tunnels, ReadProgress(seconds=INTERVAL)) if targets else ():
                self._answers.setdefault(reply.port - (reply.rank or 0), {})[reply.port] = reply.read(Progress)
        still = {base for base, now in self._answers.items() if may_wait(now) and (is_only or now == before.get(base))}
        self._found = {base: waits for base, waits in self._found.items() if base in still}
        if new := still - self._found.keys():
            verdicts = await examine_once(self._tunnels, [port for base in new for port in self._answers[base]])
            found = {verdict.job.base_port: dict(waits_of(verdict)) for verdict in verdicts}
            self._found |= {base: found.get(base, {}) for base in new if found.get(base) or not is_only}
        self._tunnels.set_waits({port: text for waits in self._found.values() for port, text in waits.items()})


def may_wait(answers: Mapping[int, Progress]) -> bool:
    """Return whether a rank has begun more operations than another rank of its group."""
    counts = {pair for answer in answers.values() for pair in answer.begun.items()}
    return len(counts) > len({group for group, _ in counts})


def waits_of(verdict: JobVerdict) -> Iterator[tuple[int, str]]:
    """Yield the port of each rank that waits for others, and its state: `in all_reduce, waiting for rank 2`."""
    known = [wait for wait in verdict.unrecorded if not wait.is_for_device and wait.call not in POINT_TO_POINT]
    found = [(rank, wait.call, verdict.job.ranks.keys() - set(wait.ranks)) for wait in known for rank in wait.ranks]
    for group in reversed(verdict.groups):  # the longest wait is the first
        calls = {rank: group.entered[rank] for rank in group.waiting} | {**group.ahead}
        for rank, operation in calls.items() if (group.age or 0.0) >= MIN_AGE else ():
            name = operation.name if operation else "a collective operation"
            found.append((rank, name, {*group.missing, *group.unknown}))
    for rank, name, others in found:
        awaited = f", waiting for {format_ranks(sorted(others))}" if others else ""
        yield verdict.job.base_port + rank, printable(f"in {name}{awaited}")

"""Requests the stacks of all processes from all agents."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from relay_client.agents.requests import send_request
from relay_client.agents.roster import absent_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.stacks.groups import Reply, read_replies
from relay_core.agent_api.announcement import AgentInfo, State
from relay_core.agent_api.requests import Stacks
from relay_core.agent_api.stacks import ProcessStacks
from relay_core.errors import RelayDebugError

__all__ = ["collect_stacks"]

STACKS_TIMEOUT = 30.0
"""Seconds to wait for an agent, which waits at most ten seconds for a process."""


async def collect_stacks(tunnels: Tunnels, ranks: Collection[int] | None, *, with_locals: bool) -> list[Reply]:
    """Return the response of each connected agent, or the reason why it could not be obtained.

    An additional reply contains the ranks without a registered process, unless no agent replied for any chosen rank.

    Args:
        tunnels: The client's tunnels, after all agents have been found.
        ranks: The ranks that the caller wants; None for all.
        with_locals: Whether to include local variables.
    """

    async def reply_of(agent: AgentInfo) -> Reply:
        try:
            response = await send_request(tunnels, agent.id, Stacks(locals=with_locals), within=STACKS_TIMEOUT)
        except RelayDebugError as error:
            return Reply.failed(agent.host, error.sentence)
        waiting = frozenset(target.port for target in agent.targets if target.state is State.WAITING)
        return replace(Reply.parse(agent.host, response), waiting=waiting)

    absent = absent_ranks(tunnels.roster, ranks)
    replies = list(await asyncio.gather(*map(reply_of, tunnels.roster)))
    answered = {process.port for reply in replies for process in reply.processes}
    others = (ProcessStacks(one.port, one.rank, error=one.reason) for one in absent if one.port not in answered)
    return [*replies, Reply("", tuple(others))] if read_replies(replies, ranks) else replies

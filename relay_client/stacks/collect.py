"""Requests the stacks of all processes from all agents."""

from __future__ import annotations

import asyncio

from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import Tunnels
from relay_client.stacks.groups import Reply
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.requests import Stacks
from relay_core.errors import RelayDebugError

__all__ = ["collect_stacks"]

STACKS_TIMEOUT = 30.0
"""Seconds to wait for an agent, which waits at most ten seconds for a process."""


async def collect_stacks(tunnels: Tunnels, *, with_locals: bool) -> list[Reply]:
    """Return the response of each connected agent, or the reason why it could not be obtained."""

    async def reply_of(agent: AgentInfo) -> Reply:
        try:
            response = await send_request(tunnels, agent.id, Stacks(locals=with_locals), within=STACKS_TIMEOUT)
        except RelayDebugError as error:
            return Reply.failed(agent.host, error.sentence)
        return Reply.parse(agent.host, response)

    return list(await asyncio.gather(*map(reply_of, tunnels.roster)))

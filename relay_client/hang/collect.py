"""Asks all agents for the process groups and main threads of their processes, each with the same deadline."""

from __future__ import annotations

import asyncio

from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import Tunnels
from relay_client.hang.reports import NodeReply
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.requests import Collectives
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError

__all__ = ["collect_replies"]

DEADLINE = 5.0
"""Seconds for an agent, which waits less long for each of its processes and for NCCL RAS."""


async def collect_replies(tunnels: Tunnels, *, within: float = DEADLINE) -> list[NodeReply]:
    """Return the response of each connected agent, or why there is none."""

    async def reply_of(agent: AgentInfo) -> NodeReply:
        try:
            async with timeout(within):
                response = await send_request(tunnels, agent.id, Collectives(), within=2 * within)
        except TIMEOUT_ERRORS:
            return NodeReply(agent, error=f"has not answered for {within:g} s")
        except RelayDebugError as error:
            return NodeReply(agent, error=f"cannot be asked: {error.sentence}")
        return NodeReply.parse(agent, response)

    return list(await asyncio.gather(*map(reply_of, tunnels.roster)))

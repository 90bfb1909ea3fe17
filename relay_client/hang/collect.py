"""Asks all agents for the process groups and main threads of their processes, with the same deadline for each."""

from __future__ import annotations

import asyncio

from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import Tunnels
from relay_client.hang.reports import NodeReply
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.requests import Collectives
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, RelayDebugError

__all__ = ["collect_replies"]

DEADLINE = 5.0
"""Seconds to wait for an agent's response; the agent waits less time for its processes and for NCCL RAS."""
RETRY_INTERVAL = 0.1
"""Seconds between attempts while the tunnel to an agent is interrupted."""


async def collect_replies(tunnels: Tunnels, *, within: float = DEADLINE) -> list[NodeReply]:
    """Return, within `within` seconds, the response of each known agent, or the reason why there is none."""
    return list(await asyncio.gather(*(_reply_of(agent, tunnels, within) for agent in tunnels.roster)))


async def _reply_of(agent: AgentInfo, tunnels: Tunnels, within: float) -> NodeReply:
    silence = f"did not answer within {within:g} s"
    try:
        async with timeout(within):
            while True:
                try:
                    response = await send_request(tunnels, agent.id, Collectives(), within=2 * within)
                    return NodeReply.parse(agent, response)
                except ConnectionLost as error:
                    silence = f"cannot be queried: {error.sentence}"
                await asyncio.sleep(RETRY_INTERVAL)
    except TIMEOUT_ERRORS:
        return NodeReply(agent, error=silence)
    except RelayDebugError as error:
        return NodeReply(agent, error=f"cannot be queried: {error.sentence}")

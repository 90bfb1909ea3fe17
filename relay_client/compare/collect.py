"""Asks all agents to evaluate an expression."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relay_client.agents.requests import send_request
from relay_client.agents.roster import absent_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.compare.groups import Reply
from relay_client.number_lists import parse_chosen_ranks
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.evaluation import Evaluate, NodeValues, Value
from relay_core.agent_api.members import Member, selects_port
from relay_core.errors import RelayDebugError
from relay_core.value_parsers import escape_controls

__all__ = ["RESPONSE_MARGIN", "collect_values"]

RESPONSE_MARGIN = 10.0
"""Seconds that an agent has to respond once the time limit of its processes has expired."""


async def collect_values(tunnels: Tunnels, request: Evaluate, agents: Sequence[AgentInfo] | None = None) -> list[Reply]:
    """Return the response of each connected agent, or the reason why it could not be obtained.

    Ranks without a registered process are returned in an additional reply if any agent returned a value or an error.

    Args:
        tunnels: The client's tunnels.
        request: The request.
        agents: Agents to ask; None for all.
    """

    async def reply_of(agent: AgentInfo) -> Reply:
        host = escape_controls(agent.host)
        try:
            response = await send_request(tunnels, agent.id, request, within=request.seconds + RESPONSE_MARGIN)
        except RelayDebugError as error:
            return Reply(host, error=escape_controls(error.sentence))
        return Reply(host, NodeValues.parse(response, escape_controls).values)

    absent = [
        one
        for one in absent_ranks(tunnels.roster, parse_chosen_ranks(request.ranks))
        if selects_port(request.ports, one.port)
    ]
    replies = list(await asyncio.gather(*map(reply_of, tunnels.roster if agents is None else agents)))
    answered = {member.port for reply in replies for value in reply.values for member in value.members}
    others = (
        Value((Member(one.port, one.rank),), error=one.reason, is_silent=True)
        for one in absent
        if one.port not in answered
    )
    has_response = any(reply.values or reply.error for reply in replies)
    return [*replies, Reply("", tuple(others))] if has_response else replies

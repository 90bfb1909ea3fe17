"""Asks all agents to evaluate an expression, and searches where the values differ."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relay_client.agents.job_ranks import absent_ranks
from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import Tunnels
from relay_client.compare.groups import Reply, odd_ones_first
from relay_client.compare.render import show_values
from relay_client.compare.search import Difference, Search
from relay_client.number_lists import parse_chosen_ranks
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.evaluation import Evaluate, NodeValues, Selection, Value
from relay_core.agent_api.members import Member
from relay_core.errors import RelayDebugError
from relay_core.values import escape_controls

__all__ = ["collect_values", "compare_as_text", "find_differences"]

MARGIN = 10.0
"""Seconds beyond the time limit of the processes for an agent to respond."""


async def collect_values(tunnels: Tunnels, request: Evaluate) -> list[Reply]:
    """Return the response of each connected agent, or the reason why it could not be obtained.

    Ranks without a registered process have a reply of their own, unless no other rank was chosen.
    """

    async def reply_of(agent: AgentInfo) -> Reply:
        host = escape_controls(agent.host)
        try:
            response = await send_request(tunnels, agent.id, request, within=request.seconds + MARGIN)
        except RelayDebugError as error:
            return Reply(host, error=escape_controls(error.sentence))
        return Reply(host, NodeValues.parse(response, escape_controls).values)

    absent = absent_ranks(tunnels.roster, parse_chosen_ranks(request.ranks))
    replies = list(await asyncio.gather(*map(reply_of, tunnels.roster)))
    answered = {member.port for reply in replies for value in reply.values for member in value.members}
    others = (
        Value((Member(one.port, one.rank),), error=one.reason, is_silent=True)
        for one in absent
        if one.port not in answered
    )
    has_response = any(reply.values or reply.error for reply in replies)
    return [*replies, Reply("", tuple(others))] if has_response else replies


async def compare_as_text(tunnels: Tunnels, request: Evaluate) -> str:
    """Return the table of the values of all ranks."""
    groups = odd_ones_first(await collect_values(tunnels, request))
    differences = None if request.selection is None else await find_differences(tunnels, request, groups)
    return show_values(groups, differences)


async def find_differences(tunnels: Tunnels, request: Evaluate, groups: Sequence[Value]) -> dict[Value, Difference]:
    """Return how each group differs from the largest one.

    Args:
        tunnels: The client's tunnels.
        request: The request that the groups are the result of.
        groups: All groups, the largest one last; those without a value are not compared.
    """
    compared = [group for group in groups if not group.error and group.members and group.members[0].rank is not None]
    found: dict[Value, Difference] = {}
    for odd in compared[:-1]:
        usual = compared[-1]
        search = Search(odd, usual)
        while (selection := search.next()) is not None:
            search.received(*await _values_of(tunnels, request, selection, (odd, usual)))
        if search.difference is not None:
            found[odd] = search.difference
    return found


async def _values_of(
    tunnels: Tunnels, request: Evaluate, selection: Selection, groups: Sequence[Value]
) -> tuple[Value, ...]:
    """Return a selection of the value of the first rank of each group."""
    ranks = [group.members[0].rank for group in groups]
    again = request.at(selection, ",".join(map(str, ranks)))
    values = odd_ones_first(await collect_values(tunnels, again))
    by_rank = {member.rank: value for value in values for member in value.members}
    return tuple(by_rank.get(rank, Value(error="no answer")) for rank in ranks)

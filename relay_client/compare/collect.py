"""Asks all agents to evaluate an expression, and finds where the values of two groups of ranks differ."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from relay_client.agents.requests import RESPONSE_MARGIN, absent_among, send_request, send_step
from relay_client.agents.tunnels import Tunnels
from relay_client.compare.groups import Reply, odd_ones_first
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.evaluation import Difference, Evaluate, NodeValues, SearchStart, SearchStep, Selection, Value
from relay_core.agent_api.members import Member
from relay_core.difference_search import PairedValues, Search
from relay_core.errors import RelayDebugError
from relay_core.value_parsers import escape_controls

__all__ = ["collect_values", "find_differences"]

logger = logging.getLogger(__name__)


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

    absent = absent_among(tunnels, request.ranks, request.ports)
    replies = list(await asyncio.gather(*map(reply_of, tunnels.roster if agents is None else agents)))
    answered = {member.port for reply in replies for value in reply.values for member in value.members}
    others = (
        Value((Member(one.port, one.rank),), error=one.reason, is_silent=True)
        for one in absent
        if one.port not in answered
    )
    has_response = any(reply.values or reply.error for reply in replies)
    return [*replies, Reply("", tuple(others))] if has_response else replies


# Finds where the values of two groups of ranks differ; for this, agents compare checksums of parts of the values.
#
# Why the values are not sent: to find one element that differs in a tensor of 256 MiB, ranks on different nodes
# transfer 829 bytes each, and on one node 130 (`make bench BENCH="--quick --only comparing"`).
# `relay_core.difference_search` has the steps.
#
# Three ways remain, each for what the one before cannot do: one agent has both values; two agents search together, and
# this client only forwards; this client asks for checksums step by step. The last is the slowest, a round trip to the
# client for each step, but needs nothing that an agent has kept, so it also ends a search whose agent has forgotten it.


async def find_differences(tunnels: Tunnels, request: Evaluate, groups: Sequence[Value]) -> dict[Value, Difference]:
    """Return how each group differs from the largest one.

    If one node has both values, its agent has already found the difference. For values on different nodes, the two
    agents search together while the client forwards their messages; if that fails, the client requests checksums step
    by step.

    Args:
        tunnels: The client's tunnels.
        request: The request that produced the groups.
        groups: All groups, the largest one last; those without a value are not compared.
    """
    compared = [group for group in groups if not group.error and group.members]
    found: dict[Value, Difference] = {}
    for number, odd in enumerate(compared[:-1]):
        usual = compared[-1]
        if odd.difference is not None and odd.difference.other == usual.digest:
            found[odd] = odd.difference
        else:
            found[odd] = await _find_difference(tunnels, request, odd, usual, number)
    return found


async def _find_difference(tunnels: Tunnels, request: Evaluate, odd: Value, usual: Value, number: int) -> Difference:
    """Search for the first difference between two groups.

    Args:
        tunnels: The client's tunnels.
        request: The request that produced the groups.
        odd: A group.
        usual: The largest group.
        number: The number of the comparison; each comparison searches in a different rank of the largest group.
    """
    first, second, selection = odd, usual, Selection()
    leaves = min(odd.leaves, usual.leaves)
    if (odd.starts or usual.starts) and not _is_decided(odd, usual):
        if odd.starts and usual.starts and odd.leaves == usual.leaves:
            paired = PairedValues(usual.starts[number % len(usual.starts)], escape_controls)
            await _pass_messages(tunnels, request, paired, (odd.starts[0], usual.starts[number % len(usual.starts)]))
            if paired.difference is not None:
                return paired.difference
            selection = paired.rest or Selection()
        selection = Selection(0, leaves) if selection == Selection() else selection
        first, second = await _values_of(tunnels, request, selection, (odd, usual))
    search = Search(first, second, selection)
    while (part := search.next()) is not None:
        search.received(*await _values_of(tunnels, request, part, (odd, usual)))
    assert search.difference is not None  # noqa: S101 - a search ends with a difference
    return search.difference


def _is_decided(odd: Value, usual: Value) -> bool:
    """Return whether two values are of different kinds, or are compared as a whole."""
    if odd.leaf is None or usual.leaf is None:
        return False
    kinds = {(leaf.name, leaf.description, leaf.elements) for leaf in (odd.leaf, usual.leaf)}
    return len(kinds) > 1 or not odd.leaf.elements


async def _pass_messages(
    tunnels: Tunnels, request: Evaluate, search: PairedValues, starts: tuple[SearchStart, SearchStart]
) -> None:
    """Forward messages between two agents until the search has ended or one of the agents does not answer."""
    while (asked := search.next()) is not None:
        side, message = asked
        start = starts[side]
        agents = [agent.id for agent in tunnels.roster if any(target.port == start.port for target in agent.targets)]
        if not agents:
            return
        try:
            step = SearchStep(start.token, message)
            # An agent evaluates the expression twice for each message.
            search.received(await send_step(tunnels, agents[0], step, within=2 * request.seconds + RESPONSE_MARGIN))
        except RelayDebugError as error:
            logger.debug("the search failed: %s", error.sentence)
            return


async def _values_of(
    tunnels: Tunnels, request: Evaluate, selection: Selection, groups: Sequence[Value]
) -> tuple[Value, ...]:
    """Return the selected part of the value in the first process of each group."""
    # Ports identify processes, because several jobs may have a rank with the same number.
    ports = [group.members[0].port for group in groups]
    agents = [agent for agent in tunnels.roster if any(target.port in ports for target in agent.targets)]
    values = odd_ones_first(await collect_values(tunnels, request.at(selection, ports), agents))
    by_port = {member.port: value for value in values for member in value.members}
    return tuple(by_port.get(port, Value(error="no answer")) for port in ports)

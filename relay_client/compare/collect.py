"""Asks all agents to evaluate an expression, and finds where the values of two groups of ranks differ."""

from __future__ import annotations

from collections.abc import Sequence

from relay_client.agents.requests import ask_agents, has_port, with_absent
from relay_client.agents.tunnels import Tunnels
from relay_client.compare.groups import odd_ones_first
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.evaluation import Difference, Evaluate, Selection, Value
from relay_core.difference_search import Search
from relay_core.foreign import escape_controls


async def collect_values(tunnels: Tunnels, request: Evaluate, agents: Sequence[AgentInfo] | None = None) -> list[Value]:
    """Return the value in each process, or the reason why it, or the response of an agent, is missing.

    Ranks without a registered process are included if any agent returned a value or an error. A process whose port
    another agent owns is not.

    Args:
        tunnels: The client's tunnels.
        request: The request.
        agents: Agents to ask; None for all.
    """
    nodes = with_absent(tunnels, request, await ask_agents(tunnels, request, agents))
    failed = (
        Value(text=escape_controls(node.agent.host), error=node.error, is_silent=True) for node in nodes if node.error
    )
    replies = ((node.agent, reply) for node in nodes for reply in node.replies.processes)
    owned = (reply for agent, reply in replies if has_port(agent, reply.port, tunnels))
    return [*failed, *(reply.result(Value, escape_controls) for reply in owned)]


# Finds where the values of two groups of ranks differ; for this, agents compare checksums of parts of the values.
#
# The values are not sent: to find one element that differs in a tensor of 256 MiB, ranks on different nodes transfer
# 5 KB each, and those of one node 320 bytes (`make bench BENCH="--quick --only comparing"`).


async def find_differences(tunnels: Tunnels, request: Evaluate, groups: Sequence[Value]) -> dict[Value, Difference]:
    """Return how each group differs from the largest one.

    If one node has both values, its agent has already found the difference. For values on different nodes, the client
    requests checksums step by step.

    Args:
        tunnels: The client's tunnels.
        request: The request that produced the groups.
        groups: All groups, the largest one last; those without a value are not compared.
    """
    compared = [group for group in groups if not group.error and group.members]
    found: dict[Value, Difference] = {}
    for odd in compared[:-1]:
        usual = compared[-1]
        if odd.difference is not None and odd.difference.other == usual.digest:
            found[odd] = odd.difference
        else:
            found[odd] = await _find_difference(tunnels, request, odd, usual)
    return found


async def _find_difference(tunnels: Tunnels, request: Evaluate, odd: Value, usual: Value) -> Difference:
    """Search for the first difference between two groups."""
    search = Search(odd, usual)
    while (part := search.next()) is not None:
        search.received(*await _values_of(tunnels, request, part, (odd, usual)))
    assert search.difference is not None  # noqa: S101 - a search ends with a difference
    return search.difference


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

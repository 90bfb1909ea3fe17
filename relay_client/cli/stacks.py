"""`relay-client stacks`: what all ranks are doing now, equal ones together."""

from __future__ import annotations

import asyncio

from relay_client.agents.announcement import AgentInfo
from relay_client.agents.requests import ask
from relay_client.agents.tunnels import Tunnels
from relay_client.stacks.groups import Reply
from relay_core.errors import RelayDebugError

__all__ = ["collect_stacks"]

STACKS_TIMEOUT = 30.0
"""Seconds; an agent spends at most ten on a process that does not answer."""


async def collect_stacks(tunnels: Tunnels, *, with_locals: bool) -> list[Reply]:
    """Return what each agent says about its processes; one that cannot be asked replies with the reason.

    Raises:
        NoListener: there is no agent.
        RelayDebugError: the relay, the credentials or the tunnel key are unusable.
    """

    async def reply_of(agent: AgentInfo) -> Reply:
        try:
            answer = await ask(tunnels, agent.id, "stacks/locals" if with_locals else "stacks", within=STACKS_TIMEOUT)
        except RelayDebugError as error:
            answer = {"error": error.sentence}
        return {**answer, "host": agent.host}

    async with tunnels:
        await tunnels.discover_all()
        return list(await asyncio.gather(*map(reply_of, tunnels.roster)))

"""What the agents know about the processes of a session of all ranks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import Tunnels
from relay_client.stacks.groups import Reply
from relay_client.stacks.places import places
from relay_client.ui.endings import exit_code
from relay_core.agent_api.announcement import AgentId
from relay_core.agent_api.requests import Stacks
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import first_completed

__all__ = ["ProcessKey", "announced_exit_code", "find_places"]

PLACES_TIMEOUT = 1.2
"""Seconds for an agent to read the stacks of its processes; after this time, the summary is shown without them."""
ENDING_PATIENCE = 3.0
"""Seconds for an agent to announce how a process has ended; it reads the status from the process's parent."""

ProcessKey = tuple[AgentId, int, int | None]
"""Agent, logical port and process id: a restarted rank has a new key."""

logger = logging.getLogger(__name__)


async def find_places(tunnels: Tunnels, processes: Mapping[int, ProcessKey]) -> dict[int, str]:
    """Return what processes are doing, for those whose agents answer; the keys are those of `processes`."""
    agents = {agent for agent, _, _ in processes.values()}
    found = dict(zip(agents, await asyncio.gather(*(_places_on(tunnels, agent) for agent in agents)), strict=True))
    wanted = {number: found[agent].get(port) for number, (agent, port, _) in processes.items()}
    return {number: place for number, place in wanted.items() if place}


async def _places_on(tunnels: Tunnels, agent_id: AgentId) -> dict[int, str]:
    try:
        response = await send_request(tunnels, agent_id, Stacks(), within=PLACES_TIMEOUT)
    except RelayDebugError as error:
        logger.debug("cannot read the stacks: %s", error)
        return {}
    return dict(places(Reply.parse("", response)))


async def announced_exit_code(tunnels: Tunnels, process: ProcessKey) -> int | None:
    """Return the exit code of a process once its agent announces it; None if the process is running, or in doubt."""
    agent_id, port, pid = process
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ENDING_PATIENCE
    while (agent := tunnels.roster.agent(agent_id)) is not None and (left := deadline - loop.time()) > 0:
        changed = tunnels.search.changed
        if (ending := agent.ending(port, pid)) is not None and ending.is_final:
            return exit_code(ending)
        if any(target.pid == pid for target in agent.targets):
            return None
        await first_completed(changed.wait(), timeout=left)
    return None

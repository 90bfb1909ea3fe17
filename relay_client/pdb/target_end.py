"""How a target has ended, for a program that has just lost its debug session."""

from __future__ import annotations

import asyncio

from relay_client.agents.tunnels import Tunnels
from relay_client.editor.ending import END_PATIENCE, EXIT_PATIENCE
from relay_client.ui.endings import how_ended
from relay_core.agent_api.announcement import AgentId, TargetInfo
from relay_core.compat import TIMEOUT_ERRORS, timeout

__all__ = ["how_target_ended"]


async def how_target_ended(tunnels: Tunnels, agent_id: AgentId, target: TargetInfo) -> str:
    """Wait, for as long as an editor would, until an agent has announced how a target has ended.

    Returns:
        A phrase that follows the name of the target, such as `ended with status 3`; "" if the agent announced nothing.
    """
    loop = asyncio.get_running_loop()
    ending, deadline = None, loop.time() + END_PATIENCE
    while True:
        changed, agent = tunnels.search.changed, tunnels.roster.agent(agent_id)
        found = agent.ending(target.port, target.pid) if agent is not None else None
        if found is not None and ending is None:
            deadline = loop.time() + EXIT_PATIENCE  # the process may still be exiting
        ending = found or ending
        if agent is None or (ending is not None and ending.is_final):
            break
        try:
            async with timeout(deadline - loop.time()):
                await changed.wait()
        except TIMEOUT_ERRORS:
            break
    return how_ended(ending) if ending is not None else ""

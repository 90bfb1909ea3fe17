"""Waits for the announcement of how a process has ended whose debug session is lost; for editors: `editor.ending`."""

from __future__ import annotations

import asyncio

from relay_client.agents.tunnels import Tunnels
from relay_client.ranks.view import END_PATIENCE, EXIT_PATIENCE, exit_code, how_ended
from relay_core.agent_api.announcement import AgentId, Ending
from relay_core.net.tasks import first_completed

ProcessKey = tuple[AgentId, int, int | None]
"""Agent, logical port and process id: a restarted rank has a new key."""

CODE_PATIENCE = 3.0
"""Seconds for an agent to announce the end of a rank whose connection has ended; no editor waits for it."""


async def how_process_ended(tunnels: Tunnels, process: ProcessKey) -> str:
    """Return how a process has ended once that is announced: a phrase that follows its name, or "" if unknown."""
    ending = await _ending(tunnels, process, END_PATIENCE)
    return how_ended(ending) if ending is not None else ""


async def announced_exit_code(tunnels: Tunnels, process: ProcessKey) -> int | None:
    """Return the exit code of a process once its agent announces it; None if the process is running, or in doubt."""
    agent = tunnels.roster.agent(process[0])
    if agent is None or any(target.pid == process[2] for target in agent.targets):
        return None
    ending = await _ending(tunnels, process, CODE_PATIENCE)
    return exit_code(ending) if ending is not None and ending.is_final else None


async def _ending(tunnels: Tunnels, process: ProcessKey, patience: float) -> Ending | None:
    """Return what is announced about the end of a process: all of it, or what is known when patience has expired.

    Args:
        tunnels: The tunnels to the agents.
        process: The process.
        patience: Seconds until the first announcement.
    """
    agent_id, port, pid = process
    loop = asyncio.get_running_loop()
    known, deadline = None, loop.time() + patience
    while True:
        changed, agent = tunnels.search.changed, tunnels.roster.agent(agent_id)
        found = agent.ending(port, pid) if agent is not None else None
        if found is not None and known is None:
            deadline = loop.time() + EXIT_PATIENCE
        known = found or known
        left = deadline - loop.time()
        if agent is None or (known is not None and known.is_final) or left <= 0:
            return known
        await first_completed(changed.wait(), timeout=left)

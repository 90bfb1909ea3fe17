"""Errors for destinations that cannot be reached, with what is known about the agents."""

from __future__ import annotations

import time

from relay_client.agents.announcement_changes import describe_agent
from relay_client.agents.roster import Destination, Roster
from relay_client.ui.text import CHECK_PORTS
from relay_core.errors import NoListener
from relay_core.net.session.client import LinkStatus

__all__ = ["NotForwarded", "describe_agents", "disconnected_error", "no_agent_error"]

SPAWNED = (
    "a worker that the job starts itself, for example with torch.multiprocessing.spawn, has a port only if it calls "
    "start_remote_debugging_from_args() after it has set RANK and WORLD_SIZE"
)


class NotForwarded(NoListener):
    """Agents are connected, but none of them forwards the port; the job must be started with `--debug-forward`."""

    retryable = False


def describe_agents(roster: Roster, now: float, *, is_encrypted: bool) -> str:
    """Return one line with the connected agents and whether the tunnels are encrypted end to end."""
    sealed = "encrypted end to end" if is_encrypted else "NOT encrypted end to end"
    return "; ".join([*(describe_agent(agent, now) for agent in roster), sealed])


def disconnected_error(agent: str, status: LinkStatus) -> NoListener:
    """Return the error for a destination whose agent is known, but whose tunnel is not connected."""
    since = time.strftime("%H:%M:%S", time.localtime(status.since))
    return NoListener(
        f"the tunnel to {agent} is {status.state.value} (since {since}){': ' if status.reason else ''}{status.reason}",
        hint="wait until the network is available; the tunnel then reconnects automatically",
    )


def no_agent_error(wanted: Destination, path: str, roster: Roster, agents: str) -> NoListener:
    """Return the error for a destination that none of the connected agents serves.

    Args:
        wanted: The destination.
        path: Name of the hybrid connection or family.
        roster: The agents.
        agents: Their description.
    """
    reason = f"no agent on '{path}' serves {wanted}"
    sentence = f"{reason}; {agents}"
    if not wanted.is_forward:
        hint = f"{CHECK_PORTS}; {SPAWNED}" if _has_no_launcher(roster) else CHECK_PORTS
        return NoListener(sentence, hint=hint, reason_to_wait=reason)
    nodes = {agent.node_rank for agent in roster}
    known = wanted.node_rank is None or wanted.node_rank in nodes
    hint = f"start the job with --debug-forward {wanted.port}, or use 'relay-agent serve --port {wanted.port}'"
    return (NotForwarded if known else NoListener)(sentence, hint=hint, reason_to_wait=reason)


def _has_no_launcher(roster: Roster) -> bool:
    """Return whether every process has registered as the only rank of its job, as one that starts its ranks itself."""
    targets = [target for agent in roster for target in agent.targets]
    return bool(targets) and all(target.world in {None, 1} for target in targets)

"""Snapshots of the job behind a local port, created from the roster and the state of the tunnel."""

from __future__ import annotations

import time
from dataclasses import replace

from relay_client.agents.announcement_changes import name_with_node
from relay_client.agents.roster import Claim, Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.editor.job_view import JobView
from relay_client.ui.text import clock
from relay_core.agent_api.announcement import AgentId, AgentInfo, TargetInfo
from relay_core.net.session.client import LinkState

__all__ = ["JobViews"]

AWAY = frozenset({LinkState.RECONNECTING, LinkState.SILENT})


class JobViews:
    """Creates the snapshots for one connection.

    Args:
        tunnels: The tunnels to the agents.
        destination: The destination of the connection.
    """

    def __init__(self, tunnels: Tunnels, destination: Destination) -> None:
        self._tunnels = tunnels
        self._port = destination.port
        self._agent: AgentId | None = None
        """The agent of the stream."""
        self._pid: int | None = None
        """The process that the stream leads to; it stays the same if another process takes the port later."""
        self._view = JobView(destination.port, tunnels.endpoint.path)

    def __repr__(self) -> str:
        return f"<JobViews of port {self._port}>"

    @property
    def agent_id(self) -> AgentId | None:
        """The agent of the stream."""
        return self._agent

    def connected(self) -> None:
        """Record that a stream to the owner of the port has just been opened."""
        if claim := self._owner():
            self._agent, self._pid = claim.agent.id, claim.target.pid

    def current(self) -> JobView:
        """Return what is currently known, or what was last known about a process that has exited."""
        claim = self._owner()
        is_running = claim is not None and (
            self._agent is None or (claim.agent.id, claim.target.pid) == (self._agent, self._pid)
        )
        is_unknown = claim is None and not self._view.label
        self._view = replace(
            self._view, is_running=is_running, other_ports=self._tunnels.roster.ports() if is_unknown else ()
        )
        if claim is not None and is_running:
            self._view = _described(self._view, claim.agent, claim.target)
        if self._agent is not None and (agent := self._tunnels.roster.agent(self._agent)):
            self._view = replace(
                self._view,
                away_reason=self._away_reason(self._agent),
                announces_endings=agent.endings is not None,
                ending=agent.ending(self._port, self._pid),
            )
        return self._view

    def _owner(self) -> Claim | None:
        return self._tunnels.roster.owner(self._port, time.time())

    def _away_reason(self, agent_id: AgentId) -> str:
        link = self._tunnels.link(agent_id)
        return (link.reason or link.state.value) if link is not None and link.state in AWAY else ""


def _described(view: JobView, agent: AgentInfo, target: TargetInfo) -> JobView:
    attachment = target.attachment
    since = f" (since {clock(attachment.since)})" if attachment and attachment.since is not None else ""
    return replace(
        view,
        label=name_with_node(target, agent),
        is_alone=target.world in {None, 1},
        host=agent.host,
        cwd=target.cwd,
        script=target.script,
        pushes=target.pushes,
        is_stopped=bool(attachment and attachment.is_stopped),
        peer_timeout=target.peer_timeout,
        holder=f"held by {attachment.user}{since}" if attachment else "",
    )

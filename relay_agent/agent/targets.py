"""What an agent can connect clients to: the seam between the agent, which knows tunnels, and those who know targets.

There are two providers: `relay_agent.agent.port_targets` (fixed ports, `relay-agent serve`) and
`relay_agent.node.processes` (the processes of a node's jobs).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.requests import Ready, Stacks, Wake
from relay_core.agent_api.stacks import NodeStacks
from relay_core.errors import ConnectionLost

__all__ = ["Target", "TargetGone", "TargetProvider"]


class TargetGone(ConnectionLost):
    """The process behind a port ended before anything was exchanged; a successor may be starting."""


class Target(Protocol):
    """One thing behind a logical port."""

    @property
    def logical_port(self) -> int:
        """The number that users write in `--ports` and launch.json."""

    @property
    def dap_only(self) -> bool:
        """Whether it is a debugger: for debug clients only, and for one user at a time."""

    async def locate(self) -> tuple[str, int]:
        """Return host and port to dial now; what sleeps until then is woken.

        Raises:
            TargetGone: its process has just ended.
            RelayDebugError: it cannot be woken.
        """

    async def connect_to(self, port: int) -> None:
        """Have its debugger connect to a port of this machine.

        Raises:
            RelayDebugError: it cannot.
        """

    def detached(self) -> None:
        """React to the departure of the last client."""

    def describe(self) -> TargetInfo:
        """Return what is announced about it, but for who is attached."""


class TargetProvider(Protocol):
    """Everything that an agent serves."""

    def find(self, port: int) -> Target | None:
        """Return the target with a logical port."""

    def describe(self, agent: AgentInfo) -> AgentInfo:
        """Return the announcement with what is known here besides the targets: forwards, node rank, run."""

    def targets(self) -> Iterable[Target]:
        """Return what is announced as targets."""

    async def answer(self, request: Wake | Stacks) -> Ready | NodeStacks:
        """Return the answer to a request.

        Raises:
            RelayDebugError: it cannot be answered.
        """

    def status_received(self, status: ClientStatus) -> None:
        """React to a client's STATUS: its view of the hybrid connection."""

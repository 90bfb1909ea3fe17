"""Interface between the agent, which handles tunnels, and the providers of its targets.

There are two providers: `relay_agent.agent.port_targets` (fixed ports, `relay-agent serve`) and
`relay_agent.node.in_agent.processes` (the processes of a node's jobs).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.requests import Digest, FileDigest, Ready, Stacks, Wake
from relay_core.agent_api.stacks import NodeStacks
from relay_core.errors import ConnectionLost

__all__ = ["Target", "TargetGone", "TargetProvider"]


class TargetGone(ConnectionLost):
    """The process of a target ended before any byte was exchanged; its restarted successor may register soon."""


class Target(Protocol):
    """A process or port that clients reach by a logical port."""

    @property
    def logical_port(self) -> int:
        """The number that users write in `--ports` and launch.json."""

    @property
    def dap_only(self) -> bool:
        """Whether it is a debug adapter, which accepts debug clients only, and one user at a time."""

    @property
    def is_own(self) -> bool:
        """Whether only a program of this user may be connected to: the debugger of a process of this node."""

    async def locate(self) -> tuple[str, int]:
        """Return host and port to connect to; a process without a running debugger starts it first.

        Raises:
            TargetGone: its process has just ended.
            RelayDebugError: its debugger cannot be started.
        """

    async def connect_to(self, port: int) -> None:
        """Make its debugger connect to a port of this machine.

        Raises:
            RelayDebugError: the target cannot do that.
        """

    async def is_running(self) -> bool:
        """Return whether its process runs Python code, and its debugger none of the job's; False if that is unknown."""

    def detached(self) -> None:
        """Called when the last client has disconnected."""

    async def until_ended(self) -> str:
        """Return that its process has ended, as a sentence, some seconds later: by then debugpy has ended sessions."""

    def describe(self) -> TargetInfo:
        """Return its announcement, without the attachment."""


class TargetProvider(Protocol):
    """The targets that an agent serves."""

    def find(self, port: int) -> Target | None:
        """Return the target with a logical port."""

    def describe(self, agent: AgentInfo) -> AgentInfo:
        """Return the agent's announcement, completed with forwards, node rank and run, but not with the targets."""

    def targets(self) -> Iterable[Target]:
        """Return the targets to announce."""

    async def answer(self, request: Wake | Stacks | Digest) -> Ready | NodeStacks | FileDigest:
        """Return the response to a request.

        Raises:
            RelayDebugError: the request failed, or is not supported.
        """

    def status_received(self, status: ClientStatus) -> None:
        """Handle a client's STATUS, with the conflicts that the client sees on the hybrid connection."""

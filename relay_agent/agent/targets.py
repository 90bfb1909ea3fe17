"""Interface between the agent, which handles tunnels, and the providers of its targets.

There are two providers: `relay_agent.agent.port_targets` (fixed ports, `relay-agent serve`) and
`relay_agent.node.in_agent.processes` (the processes of the jobs on a node).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.requests import NodeRequest, Response
from relay_core.errors import ConnectionLost
from relay_core.layers.stop_observer import Place


class TargetGone(ConnectionLost):
    """The process of a target exited before any byte was exchanged; its restarted successor may register soon."""


class Target(Protocol):
    """A process or port that clients reach by a logical port."""

    @property
    def logical_port(self) -> int:
        """The number that users write in `--ports` and launch.json."""

    @property
    def dap_only(self) -> bool:
        """Whether the target is a debug adapter, which accepts only debug clients and one user at a time."""

    @property
    def is_own(self) -> bool:
        """Whether the program behind the port must belong to this user.

        True for the debugger of a process on this node.
        """

    async def locate(self) -> tuple[str, int]:
        """Return the host and port to connect to; if necessary, the process starts its debugger first.

        Raises:
            TargetGone: the target's process has just exited.
            RelayDebugError: the target's debugger cannot be started.
        """

    async def connect_to(self, port: int) -> None:
        """Make the target's debugger connect to a port of this machine.

        Raises:
            RelayDebugError: the target cannot connect.
        """

    async def is_running(self) -> bool | None:
        """Return whether the process is running Python code while its debugger is running none of the job's code.

        False if the process does not answer, and None if the agent has no connection to it.
        """

    async def stopped_at(self) -> Place | None:
        """Return where the target shows that a debugger has stopped it; None if that is unknown."""

    def detached(self, resumed_since: float | None) -> None:
        """Called when the last client has disconnected, with the time when the process last resumed."""

    async def until_ended(self) -> str:
        """Wait until the process has exited and debugpy has had a few seconds to end its sessions.

        Return the reason as text.
        """

    def describe(self) -> TargetInfo:
        """Return what the agent announces about the target, without the attachment."""


class TargetProvider(Protocol):
    """The targets that an agent serves."""

    def find(self, port: int) -> Target | None:
        """Return the target with the given logical port."""

    def describe(self, agent: AgentInfo) -> AgentInfo:
        """Return the agent's announcement with forwards, node rank and run added, but without targets."""

    def targets(self) -> Iterable[Target]:
        """Return the targets to announce."""

    async def answer(self, request: NodeRequest) -> Response:
        """Return the response to a request.

        Raises:
            RelayDebugError: the request failed, or is not supported.
        """

    def status_received(self, status: ClientStatus) -> None:
        """Handle a client's STATUS, which lists the conflicts that the client detected on the hybrid connection."""

    def set_held_jobs(self, jobs: Collection[int]) -> None:
        """Handle a change of the jobs of which a rank is held, on any node; `jobs` are their base ports."""

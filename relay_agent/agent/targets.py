"""What an agent can connect clients to: the seam between the agent, which knows tunnels, and those who know targets.

There are two providers: `relay_agent.agent.port_targets` (fixed ports, `relay-agent serve`) and
`relay_agent.node.processes` (the processes of a node's jobs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from relay_core.errors import ConnectionLost
from relay_core.tunnel.payloads import JsonObject

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

    def describe(self) -> JsonObject:
        """Return the fields that are announced to clients."""


class TargetProvider(Protocol):
    """Everything that an agent serves."""

    def find(self, port: int) -> Target | None:
        """Return the target with a logical port."""

    def describe(self) -> JsonObject:
        """Return what is announced besides the targets: forwards, node rank, run."""

    def targets(self) -> Iterable[Target]:
        """Return what is announced as targets."""

    async def answer(self, request: str) -> JsonObject:
        """Return the answer to a named request.

        Raises:
            RelayDebugError: it cannot be answered.
        """

    def status_received(self, status: Mapping[str, object]) -> None:
        """React to a client's STATUS: its view of the hybrid connection."""

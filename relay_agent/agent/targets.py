"""What an agent can connect clients to: the seam between the agent, which knows tunnels, and those who know targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from relay_agent.agent.port_targets import Target
from relay_core.errors import ConfigurationError
from relay_core.tunnel.payloads import JsonObject

__all__ = ["Catalog", "PortCatalog", "Served"]


class Served(Protocol):
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
            RelayDebugError: it cannot be woken.
        """

    async def connect_to(self, port: int) -> None:
        """Have its debugger connect to a port of this machine.

        Raises:
            RelayDebugError: it cannot.
        """

    def left(self) -> None:
        """The last client has left."""

    def describe(self) -> JsonObject:
        """Return what clients are told about it."""


class Catalog(Protocol):
    """Everything that an agent serves."""

    def find(self, port: int) -> Served | None:
        """Return what has a logical port."""

    def describe(self) -> JsonObject:
        """Return what clients are told besides the targets: forwards, node rank, run."""

    def targets(self) -> Iterable[Served]:
        """Return what is shown to clients as targets."""

    async def answer(self, request: str) -> JsonObject:
        """Return the answer to a named request.

        Raises:
            RelayDebugError: it cannot be answered.
        """

    def told(self, status: Mapping[str, object]) -> None:
        """A client has said something about its view of the hybrid connection."""


class PortCatalog:
    """Fixed ports of this machine: what `relay-agent serve` offers.

    Args:
        targets: By logical port.
    """

    def __init__(self, targets: Mapping[int, Target]) -> None:
        self._targets = dict(targets)

    def __repr__(self) -> str:
        return f"<PortCatalog {sorted(self._targets)}>"

    def find(self, port: int) -> Target | None:
        """Return what has a logical port."""
        return self._targets.get(port)

    def targets(self) -> list[Target]:
        """Return all ports."""
        return [target for _, target in sorted(self._targets.items())]

    def describe(self) -> JsonObject:
        """Return the ports that are not for debuggers only."""
        return {"forwards": [target.logical_port for target in self.targets() if not target.dap_only]}

    async def answer(self, request: str) -> JsonObject:
        """Refuse: there is no process to ask."""
        raise ConfigurationError(
            f"this agent serves ports, not processes; it cannot answer '{request}'",
            hint="start the job with --is-debug true or relay-agent run",
        )

    def told(self, status: Mapping[str, object]) -> None:
        """Pass over it: these ports are here whatever others have."""

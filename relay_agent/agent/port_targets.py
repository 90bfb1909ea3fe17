"""Fixed ports of this machine as targets, for `relay-agent serve`, and the grammar of its options.

5678          logical port 5678 is port 5678 of this machine
5678:40123    logical port 5678 is port 40123 of this machine
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.requests import Ready, Stacks, Wake
from relay_core.agent_api.stacks import NodeStacks
from relay_core.errors import ConfigurationError, UsageError
from relay_core.values import MAX_PORT, is_port_text

__all__ = ["PortTarget", "PortTargets", "parse_targets"]


@dataclass(frozen=True)
class PortTarget:
    """One local TCP port that clients can connect to."""

    logical_port: int
    """The number that users write in `--ports` and launch.json."""
    port: int
    """The port of this machine that the program listens on."""
    dap_only: bool = False
    """Whether it is a debug adapter, which accepts debug clients only."""
    host: str = "127.0.0.1"

    def __str__(self) -> str:
        return f"{self.logical_port}" if self.port == self.logical_port else f"{self.logical_port} -> {self.port}"

    async def locate(self) -> tuple[str, int]:
        """Return host and port."""
        return self.host, self.port

    async def connect_to(self, port: int) -> None:
        """Raise ConfigurationError: the agent has no control connection to the program behind the port."""
        raise ConfigurationError(
            f"port {self.logical_port} is served by a program that cannot be made to connect to port {port}",
            hint='use a launch configuration with "connect" instead of "listen"',
        )

    def detached(self) -> None:
        """Do nothing: the program behind the port is not affected."""

    def describe(self) -> TargetInfo:
        """Return its announcement."""
        return TargetInfo(self.logical_port)


class PortTargets:
    """TargetProvider for fixed ports of this machine.

    Args:
        targets: The targets by logical port.
    """

    def __init__(self, targets: Mapping[int, PortTarget]) -> None:
        self._targets = dict(targets)

    def __repr__(self) -> str:
        return f"<PortTargets {sorted(self._targets)}>"

    def find(self, port: int) -> PortTarget | None:
        """Return the target with a logical port."""
        return self._targets.get(port)

    def targets(self) -> list[PortTarget]:
        """Return all ports."""
        return [target for _, target in sorted(self._targets.items())]

    def describe(self, agent: AgentInfo) -> AgentInfo:
        """Return the announcement with the ports that are not debug adapters, as forwards."""
        forwards = tuple(target.logical_port for target in self.targets() if not target.dap_only)
        return replace(agent, forwards=forwards)

    async def answer(self, request: Wake | Stacks) -> Ready | NodeStacks:
        """Raise ConfigurationError: both requests concern processes."""
        raise ConfigurationError(
            f"this agent serves ports, not processes; it does not support '{request.name}'",
            hint="start the job with --is-debug true or relay-agent run",
        )

    def status_received(self, status: ClientStatus) -> None:
        """Ignore the status: a port has no process that could log a conflict."""


def parse_targets(texts: Iterable[str], *, dap_only: bool = False) -> dict[int, PortTarget]:
    """Parse texts of the form `PORT` or `PORT:LOCAL`, for example `5678` and `5678:40123`.

    Raises:
        UsageError: a number is not a port from 1 to 65535, or a logical port is given twice.
    """
    targets: dict[int, PortTarget] = {}
    for text in texts:
        logical, _, local = text.partition(":")
        if not (is_port_text(logical) and is_port_text(local or logical)):
            raise UsageError(
                f"invalid port: '{text}'", hint=f"use a number from 1 to {MAX_PORT}, or PORT:LOCAL as in 5678:40123"
            )
        target = PortTarget(int(logical), int(local or logical), dap_only=dap_only)
        if target.logical_port in targets:
            raise UsageError(f"port {target.logical_port} is given twice", hint="give each --port once")
        targets[target.logical_port] = target
    return targets

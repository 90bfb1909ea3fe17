"""Fixed ports on this machine as targets, for `relay-agent serve`, and the grammar of its options.

    5678                 logical port 5678 is 127.0.0.1:5678
    5678:40123           logical port 5678 is 127.0.0.1:40123
    5678:[::1]:40123     logical port 5678 is [::1]:40123
    5678:127.0.0.2:5678  logical port 5678 is 127.0.0.2:5678

Invalid: 5678:10.0.0.4:5678 (an agent serves only its own machine), 5678:localhost:5678 (a name may have two addresses).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address

from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.requests import NodeRequest, Response
from relay_core.errors import ConfigurationError, UsageError
from relay_core.value_parsers import MAX_PORT, is_port_text

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class PortTarget:
    """One local TCP port that clients can connect to."""

    logical_port: int
    """The number that users write in `--ports` and launch.json."""
    port: int
    """The port on this machine on which the program listens."""
    dap_only: bool = False
    """Whether the program is a debug adapter, which accepts only debug clients."""
    host: str = LOOPBACK
    """A loopback address of this machine."""
    is_own = False
    """The port was chosen explicitly and may belong to another user's program."""

    def __str__(self) -> str:
        if self.host != LOOPBACK:
            host = f"[{self.host}]" if ":" in self.host else self.host
            return f"{self.logical_port} -> {host}:{self.port}"
        return f"{self.logical_port}" if self.port == self.logical_port else f"{self.logical_port} -> {self.port}"

    async def locate(self) -> tuple[str, int]:
        """Return host and port."""
        return self.host, self.port

    async def connect_to(self, port: int) -> None:  # noqa: ARG002 - as in Target
        """Raise ConfigurationError: the agent has no control connection to the program behind the port."""
        raise ConfigurationError(
            f"the agent cannot make the program on port {self.logical_port} connect to a listening editor",
            hint='use a launch configuration with "connect" instead of "listen"',
        )

    async def is_running(self) -> None:
        """Return None: the agent cannot check the program behind the port."""

    async def stopped_at(self) -> None:
        """Return None, likewise."""

    def detached(self, resumed_since: float | None) -> None:
        """Do nothing: the program behind the port is not affected."""

    async def until_ended(self) -> str:
        """Wait without limit: the agent does not know the program behind the port."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    def describe(self) -> TargetInfo:
        """Return what the agent announces about this port."""
        return TargetInfo(self.logical_port)


class PortTargets:
    """TargetProvider for fixed ports on this machine.

    Args:
        targets: The targets by logical port.
    """

    def __init__(self, targets: Mapping[int, PortTarget]) -> None:
        self._targets = dict(targets)

    def find(self, port: int) -> PortTarget | None:
        """Return the target with the given logical port."""
        return self._targets.get(port)

    def targets(self) -> list[PortTarget]:
        """Return all ports."""
        return [target for _, target in sorted(self._targets.items())]

    def describe(self, agent: AgentInfo) -> AgentInfo:
        """Return the announcement, with the ports that are not debug adapters added as forwards."""
        forwards = tuple(target.logical_port for target in self.targets() if not target.dap_only)
        return replace(agent, forwards=forwards)

    async def answer(self, request: NodeRequest) -> Response:
        """Raise ConfigurationError: all requests concern processes."""
        raise ConfigurationError(
            f"this agent serves ports, not processes; it does not support '{request.name}'",
            hint="start the job with --is-debug true or relay-agent run",
        )

    def status_received(self, status: ClientStatus) -> None:
        """Ignore the status: a port has no process that could log a conflict."""

    def set_held_jobs(self, jobs: Collection[int]) -> None:
        """Ignore the jobs: the agent has no connection to their processes."""


def parse_targets(texts: Iterable[str], *, dap_only: bool = False) -> dict[int, PortTarget]:
    """Parse texts of the form `PORT`, `PORT:LOCAL` or `PORT:ADDRESS:LOCAL`.

    Raises:
        UsageError: a number is not a port from 1 to 65535, an address is not a loopback address, or a logical port is
            given twice.
    """
    targets: dict[int, PortTarget] = {}
    for text in texts:
        target = _parse_target(text, dap_only=dap_only)
        if target.logical_port in targets:
            raise UsageError(f"port {target.logical_port} is given twice", hint="give each --port only once")
        targets[target.logical_port] = target
    return targets


def _parse_target(text: str, *, dap_only: bool) -> PortTarget:
    logical, _, local = text.partition(":")
    address, separator, port = local.rpartition(":")
    local_port = port or logical
    if not (is_port_text(logical) and is_port_text(local_port)):
        raise UsageError(
            f"invalid port: '{text}'", hint=f"use a number from 1 to {MAX_PORT}, or PORT:LOCAL, such as 5678:40123"
        )
    host = _parse_loopback(address) if separator else LOOPBACK
    return PortTarget(int(logical), int(local_port), dap_only=dap_only, host=host)


def _parse_loopback(text: str) -> str:
    """Return the address in a text such as `127.0.0.2` or `[::1]`.

    Raises:
        UsageError: the text is not a loopback address in this form.
    """
    with contextlib.suppress(ValueError):
        address: IPv4Address | IPv6Address
        address = IPv6Address(text[1:-1]) if text.startswith("[") and text.endswith("]") else IPv4Address(text)
        if address.is_loopback:
            return str(address)
    raise UsageError(
        f"invalid loopback address: '{text}'",
        hint="use a loopback address, as in 5678:127.0.0.2:40123 or 5678:[::1]:40123",
    )

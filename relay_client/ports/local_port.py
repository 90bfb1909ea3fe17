"""Local ports, and the grammar of `--forward`: `6006`, `6006:16006` (remote:local), `1/6006` (the node with rank 1).

Bad: `0`, `70000`, `6006:`, `x/6006`, `6006:16006:1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from relay_client.agents.roster import Destination
from relay_core.errors import UsageError
from relay_core.value_parsers import is_port

__all__ = ["LocalPort", "all_ranks_port", "debugger_ports", "parse_forwards"]

_FORWARD = re.compile(r"(?:([0-9]{1,5})/)?([0-9]{1,5})(?::([0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True)
class LocalPort:
    """A port on this machine and its destination."""

    port: int
    destination: Destination

    def __str__(self) -> str:
        plain = self.port == self.destination.port and self.destination.node_rank is None
        return f"port {self.port}" if plain else f"port {self.port} (to {self.destination})"


def debugger_ports(ports: Iterable[int]) -> list[LocalPort]:
    """Return the local ports for `--ports`, each of which leads to the logical port with the same number."""
    return [LocalPort(port, Destination(port)) for port in ports]


def all_ranks_port(port: int) -> LocalPort:
    """Return the local port for `--all-ranks`."""
    return LocalPort(port, Destination(0, is_all_ranks=True))


def parse_forwards(texts: Iterable[str]) -> list[LocalPort]:
    """Parse the values of `--forward`.

    Raises:
        UsageError: a value is invalid, or a local port is used twice.
    """
    found: dict[int, LocalPort] = {}
    for text in texts:
        local = _parse(text)
        if local.port in found:
            raise UsageError(
                f"local port {local.port} is used twice",
                hint="use a different local port for each value, as in 6006:16006",
            )
        found[local.port] = local
    return list(found.values())


def _parse(text: str) -> LocalPort:
    match = _FORWARD.fullmatch(text.strip())
    if match:
        remote, local = int(match[2]), int(match[3] or match[2])
        if is_port(remote) and is_port(local):
            node_rank = int(match[1]) if match[1] else None
            return LocalPort(local, Destination(remote, is_forward=True, node_rank=node_rank))
    raise UsageError(f"invalid port: '{text}'", hint="use 6006, 6006:16006 (remote:local) or 1/6006 (node 1)")

"""The logical port of a rank, used in `relay-client --ports`: `--debug-port` plus the rank."""

from __future__ import annotations

from relay_core.errors import ConfigurationError
from relay_core.value_parsers import MAX_PORT

__all__ = ["logical_port"]


def logical_port(debug_port: int, rank: int) -> int:
    """Return the logical port.

    Raises:
        ConfigurationError: the port would be above the highest one.
    """
    port = debug_port + rank
    if port > MAX_PORT:
        raise ConfigurationError(
            f"rank {rank} has no port: {debug_port} + {rank} is above {MAX_PORT}", hint="use a lower --debug-port"
        )
    return port

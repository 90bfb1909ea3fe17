"""What a job tells its agent: one JSON line on the agent's stdin, made in one process and read in the other.

Its secrets travel through that pipe only, never through arguments or the environment.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from relay_core.errors import ConfigurationError

__all__ = ["AgentOrder"]


class AgentOrder(NamedTuple):
    """What an agent must know. Settings left out are looked up by the agent itself, in its environment."""

    hc: str
    """Hybrid connection."""
    logical_port: int
    """The port that the developer's launch.json names."""
    target_port: int
    """The port on 127.0.0.1 where debugpy really listens."""
    pid: int
    """The job; the agent watches it, because children of the job inherit the pipe and may outlive it."""
    connection_string: str | None = None
    connection_string_file: str | None = None
    connection_string_secret: str | None = None
    """Name of a Key Vault secret; the agent reads it, the job never does."""
    key_vault: str | None = None
    namespace: str | None = None
    identity: str | None = None
    tunnel_key_file: str | None = None
    tunnel_key_secret: str | None = None
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"<AgentOrder {self.hc!r} port {self.logical_port} -> 127.0.0.1:{self.target_port}>"

    def encode(self) -> bytes:
        """Return the line."""
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> AgentOrder:
        """Read the line.

        Raises:
            ConfigurationError: it is not what this version understands.
        """
        try:
            return cls(**json.loads(line))
        except (TypeError, ValueError):
            raise ConfigurationError(
                "this agent was started with an order that it does not understand",
                hint="it is started by relay_agent inside a job; to serve ports by hand use 'relay-agent serve'",
            ) from None

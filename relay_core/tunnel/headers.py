"""The `Relay-Tunnel` header, in which a client requests a tunnel before its offer is accepted.

    Relay-Tunnel: v=1; client=<id>                    a new session, with any agent that has none with this client
    Relay-Tunnel: v=1; client=<id>; agent=<id>        a resume, with this agent only

The header allows an agent to refuse immediately (421) if the relay ignored the listener id in the request. The header
is not authenticated; the handshake in the tunnel is. The text of the 421 ends with the id of the agent that refused, so
that the client can detect a relay that ignores listener ids:

    this is a different agent; agent=<id>
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["MISDIRECTED", "TUNNEL_HEADER", "TunnelHeader", "misdirected", "refusing_agent"]

TUNNEL_HEADER = "Relay-Tunnel"
MISDIRECTED = 421
"""Misdirected Request (RFC 9110, 15.5.20): another agent on this hybrid connection may be the right one."""
VERSION = "1"
_REFUSING_AGENT = re.compile(r"; agent=([0-9A-Za-z-]{1,64})$", re.ASCII)


@dataclass(frozen=True)
class TunnelHeader:
    """The header's fields."""

    client: str
    agent: str | None = None

    def encode(self) -> str:
        """Return the header's value."""
        agent = f"; agent={self.agent}" if self.agent else ""
        return f"v={VERSION}; client={self.client}{agent}"

    @classmethod
    def parse(cls, text: str | None) -> TunnelHeader | None:
        """Parse the header's value; return None if it is missing or has another version."""
        # Unknown fields are ignored, so that later releases can add fields.
        fields = dict(part.strip().partition("=")[::2] for part in (text or "").split(";"))
        if fields.get("v") != VERSION or not fields.get("client"):
            return None
        return cls(fields["client"], fields.get("agent") or None)


def misdirected(text: str, agent: str) -> str:
    """Return the text of a 421 from an agent."""
    return f"{text}; agent={agent}"


def refusing_agent(reason: str) -> str | None:
    """Return the id of the agent that a 421's text names, or None if it names none."""
    match = _REFUSING_AGENT.search(reason)
    return match.group(1) if match else None

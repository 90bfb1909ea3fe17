"""The header by which a client says, before it is accepted, that it wants a tunnel and with whom.

    Relay-Tunnel: v=1; client=<id>                    a new session, with any agent that has none with this client
    Relay-Tunnel: v=1; client=<id>; agent=<id>        a resume, with this agent only

It lets an agent say no at once (421) where the relay does not honour the listener selection headers. It proves nothing:
the handshake inside does.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MISDIRECTED", "TUNNEL_HEADER", "TunnelHeader"]

TUNNEL_HEADER = "Relay-Tunnel"
MISDIRECTED = 421
"""Misdirected Request (RFC 9110, 15.5.20): another agent on this hybrid connection may be the right one."""
VERSION = "1"


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
        """Read the header's value; None if there is none or it is of another version. Unknown fields are skipped."""
        fields = dict(part.strip().partition("=")[::2] for part in (text or "").split(";"))
        if fields.get("v") != VERSION or not fields.get("client"):
            return None
        return cls(fields["client"], fields.get("agent") or None)

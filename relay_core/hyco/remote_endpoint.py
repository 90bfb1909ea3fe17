"""The sender's address in messages to listeners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["RemoteEndpoint"]


@dataclass(frozen=True)
class RemoteEndpoint:
    """The sender's network address as seen by the relay."""

    address: str
    port: int

    def encode(self) -> dict[str, Any]:
        """Return the value of `remoteEndpoint`."""
        return {"address": self.address, "port": self.port}

    @classmethod
    def parse(cls, value: Any) -> RemoteEndpoint | None:
        """Return the address, or None if the value is not an address; the field is optional."""
        if not isinstance(value, dict):
            return None
        address, port = value.get("address"), value.get("port")
        return cls(address, port) if isinstance(address, str) and isinstance(port, int) else None

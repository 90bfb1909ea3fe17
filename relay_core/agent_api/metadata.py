"""What a client says about itself, and what either side says about a stream that it opens."""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.agent_api.values import Clean, as_is, items, mapping, port, text

__all__ = ["ClientInfo", "ClientStatus", "PortConflict", "StreamMetadata"]


@dataclass(frozen=True)
class ClientInfo:
    """Who a client is: sent once, as a session begins."""

    client: str
    """Names the client for its lifetime; an agent serves each client in one session."""
    user: str = ""
    """`user@host`."""

    def encode(self) -> dict[str, object]:
        """Return the client's part of HELLO."""
        return {"client": self.client, "user": self.user}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> ClientInfo:
        """Read it; an older or foreign client may say less."""
        fields = mapping(value)
        return cls(text(fields.get("client"), clean), text(fields.get("user"), clean))


@dataclass(frozen=True)
class StreamMetadata:
    """For whom a stream is opened."""

    user: str = ""
    """`user@host` of the client; "" on streams that the agent opens."""
    prefetch: bool = False
    """Whether both ends prefetch in this stream; see `relay_core.dap.prefetch`."""

    def encode(self) -> dict[str, object]:
        """Return the metadata of OPEN; what is not set is left out."""
        user: dict[str, object] = {"user": self.user} if self.user else {}
        return user | {"asks_ahead": True} if self.prefetch else user

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> StreamMetadata:
        """Read it."""
        fields = mapping(value)
        return cls(text(fields.get("user"), clean), fields.get("asks_ahead") is True)


@dataclass(frozen=True)
class PortConflict:
    """Two agents claim one port, and the client connects it to the first."""

    port: int
    kept_by: str
    """Whose the port is, as text: `node-0 pid 12`."""
    refused: str
    """Whose it is not."""

    def encode(self) -> dict[str, object]:
        """Return one element of `conflicts`."""
        return {"port": self.port, "kept_by": self.kept_by, "refused": self.refused}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> PortConflict | None:
        """Read one element of `conflicts`; None if it names no port."""
        fields = mapping(value)
        number = port(fields.get("port"))
        if number is None:
            return None
        return cls(number, text(fields.get("kept_by"), clean), text(fields.get("refused"), clean))


@dataclass(frozen=True)
class ClientStatus:
    """What a client reports to an agent: the conflicts in which that agent takes part."""

    conflicts: tuple[PortConflict, ...] = ()

    def encode(self) -> dict[str, object]:
        """Return the client's STATUS."""
        return {"conflicts": [conflict.encode() for conflict in self.conflicts]}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> ClientStatus:
        """Read it."""
        found = (PortConflict.parse(element, clean) for element in items(mapping(value).get("conflicts")))
        return cls(tuple(conflict for conflict in found if conflict is not None))

"""Metadata of clients and streams: the client's id and user, the conflicts it reports, and who opened a stream."""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.agent_api.values import Clean, as_is, items, mapping, port, short_name, text

__all__ = ["ClientInfo", "ClientStatus", "PortConflict", "StreamMetadata"]

MAX_CONFLICTS = 20
"""Maximum number of conflicts that a client reports to one agent. Each one becomes a line in the job's log, and all of
them fit into one frame."""


@dataclass(frozen=True)
class ClientInfo:
    """The identity of a client, sent once at the beginning of a session."""

    client: str
    """Identifies the client for its lifetime; an agent has one session with each client."""
    user: str = ""
    """`user@host`."""

    def encode(self) -> dict[str, object]:
        """Return the info of HELLO."""
        return {"client": self.client, "user": short_name(self.user)}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> ClientInfo:
        """Read the info of HELLO; fields that the client did not send are empty."""
        fields = mapping(value)
        return cls(text(fields.get("client"), clean), short_name(text(fields.get("user"), clean)))


@dataclass(frozen=True)
class StreamMetadata:
    """The user of a stream, and whether the stream uses prefetching."""

    user: str = ""
    """`user@host` of the client; "" on streams that the agent opens."""
    prefetch: bool = False
    """Whether agent and client prefetch on this stream; see `relay_core.dap.prefetch`."""

    def encode(self) -> dict[str, object]:
        """Return the metadata of OPEN; empty fields are omitted."""
        user: dict[str, object] = {"user": short_name(self.user)} if self.user else {}
        # The key `asks_ahead` of the wire format is older than the term prefetch.
        return user | {"asks_ahead": True} if self.prefetch else user

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> StreamMetadata:
        """Read the metadata of OPEN."""
        fields = mapping(value)
        return cls(short_name(text(fields.get("user"), clean)), fields.get("asks_ahead") is True)


@dataclass(frozen=True)
class PortConflict:
    """Two agents claim the same port; the client uses the earlier claim."""

    port: int
    kept_by: str
    """The owner of the port: `node-0 pid 12`."""
    refused: str
    """The owner of the refused claim."""

    def encode(self) -> dict[str, object]:
        """Return one element of `conflicts`."""
        return {"port": self.port, "kept_by": short_name(self.kept_by), "refused": short_name(self.refused)}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> PortConflict | None:
        """Read one element of `conflicts`; return None if its port is missing or invalid."""
        fields = mapping(value)
        number = port(fields.get("port"))
        if number is None:
            return None
        return cls(number, text(fields.get("kept_by"), clean), text(fields.get("refused"), clean))


@dataclass(frozen=True)
class ClientStatus:
    """The status that a client sends to an agent: the conflicts that involve this agent."""

    conflicts: tuple[PortConflict, ...] = ()

    def encode(self) -> dict[str, object]:
        """Return the client's STATUS."""
        return {"conflicts": [conflict.encode() for conflict in self.conflicts[:MAX_CONFLICTS]]}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> ClientStatus:
        """Read the client's STATUS."""
        found = (PortConflict.parse(element, clean) for element in items(mapping(value).get("conflicts")))
        return cls(tuple(conflict for conflict in found if conflict is not None))

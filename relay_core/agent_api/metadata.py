"""Metadata of clients and streams: the client's id and user, the conflicts it reports, and who opened a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from relay_core.foreign import short_name
from relay_core.records import Port, Wire

MAX_CONFLICTS = 20
"""Maximum number of conflicts that a client reports to one agent. Each one becomes a line in the job's log, and all of
them fit into one frame."""


MAX_JOBS = 100
"""Maximum number of jobs that a client reports to one agent."""


_ShortName = Annotated[
    str, Wire(read=lambda value, clean: short_name(clean(value)) if isinstance(value, str) else "", write=short_name)
]


@dataclass(frozen=True)
class ClientInfo:
    """The identity of a client, sent once at the beginning of a session."""

    client: str
    """Identifies the client for its lifetime; an agent has one session with each client."""
    user: _ShortName = ""
    """`user@host`."""


@dataclass(frozen=True)
class StreamMetadata:
    """The user of a stream, and what the stream is for."""

    user: _ShortName = ""
    """`user@host` of the client; "" on streams that the agent opens."""
    prefetch: bool = False
    """Whether agent and client prefetch on this stream; see `relay_core.dap.prefetch`."""
    is_release: bool = False
    """Whether the stream, which is closed at once, only ends the session of a client of this user that has gone."""


@dataclass(frozen=True)
class PortConflict:
    """Two agents claim the same port; the client uses the earlier claim."""

    port: Port
    kept_by: _ShortName
    """The owner of the port: `node-0 pid 12`."""
    refused: _ShortName
    """The owner of the refused claim."""


@dataclass(frozen=True)
class ClientStatus:
    """The status that a client sends to an agent, about what only the client knows: what other agents announce."""

    conflicts: Annotated[tuple[PortConflict, ...], Wire(most=MAX_CONFLICTS)] = ()
    """The conflicts that involve this agent."""
    held_jobs: Annotated[tuple[Port, ...], Wire(most=MAX_JOBS)] = ()
    """The base ports of jobs with ranks on this agent's node, of which a rank on another node is held."""

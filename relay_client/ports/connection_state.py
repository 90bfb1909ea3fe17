"""The state of a local connection; all times are Unix times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay_client.ranks.view import StopReport


@dataclass(frozen=True)
class Connection:
    """A connection from a local program to a port, or from a target to an editor that is listening on the port."""

    WAITING: ClassVar[str] = "waiting"
    CONNECTED: ClassVar[str] = "connected"
    CLOSED: ClassVar[str] = "closed"

    number: int
    port: int
    state: str
    """`waiting` for a target, or `connected`; `closed` only while it is being removed."""
    since: float
    reason: str | None = None
    """Why the connection is waiting or has closed."""
    sent: int = 0
    """Bytes read from the local program."""
    received: int = 0
    """Bytes written to the local program."""
    stop: StopReport | None = None
    remote_port: int | None = None
    """For the port of all ranks, the logical port of one rank; an editor there has one connection to each rank."""

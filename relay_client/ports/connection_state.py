"""The state of a local connection, and where its debugger has stopped the target; all times are Unix times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class StopReport:
    """Where a process is stopped, as reported by its debugger to the editor."""

    reason: str
    """The reason as the debugger reports it: `breakpoint`, `step`, `exception`, `pause`, ..."""
    since: float
    file: str | None = None
    """None until the editor has requested the stack; a path on this machine if `pathMappings` map it to one."""
    line: int | None = None
    function: str | None = None
    uncaught: str | None = None
    """The exception at which the process is stopped, if no code catches it, as in `ValueError: no`."""

    @property
    def place(self) -> str:
        """File name and line, as in `train.py:41`; "" if unknown."""
        if self.file is None:
            return ""
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return name if self.line is None else f"{name}:{self.line}"


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

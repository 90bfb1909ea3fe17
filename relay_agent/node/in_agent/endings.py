"""How the processes of the node ended, for the announcement: the last ending of each port."""

from __future__ import annotations

import os

from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.announcement import Ending

__all__ = ["MAX_ENDINGS", "Endings"]

MAX_ENDINGS = 64
"""Maximum number of announced endings, each about 60 bytes long; an editor needs the ending of its process within a
second."""


class Endings:
    """The endings that the agent announces; those that an editor needs are kept longest."""

    def __init__(self) -> None:
        self._endings: dict[int, tuple[bool, Ending]] = {}
        """By port, the oldest first; True if a debugger was attached to the process."""

    def __repr__(self) -> str:
        return f"<Endings {list(self._endings)}>"

    def announced(self) -> tuple[Ending, ...]:
        """Return the endings of debugged processes after all others: a long announcement keeps the last ones only."""
        return tuple(ending for _, ending in sorted(self._endings.values(), key=lambda kept: kept[0]))

    def exiting(self, process: RegisteredProcess, error: str) -> None:
        """Store that a process is about to exit, with its uncaught exception."""
        self._put(process, Ending(process.logical_port, process.pid, error=error, is_final=False))

    def ended(self, process: RegisteredProcess, status: int) -> None:
        """Store the wait status of a process; if it has failed, with the exception stored by `exiting`."""
        port, code = process.logical_port, os.waitstatus_to_exitcode(status)
        if code < 0:
            self._put(process, Ending(port, process.pid, signal=-code))
        else:
            before = self._find(process)
            error = before.error if before is not None and code > 0 else ""
            self._put(process, Ending(port, process.pid, status=code, error=error))

    def replaced(self, process: RegisteredProcess, program: str) -> None:
        """Store that a process has replaced itself with another program (exec)."""
        self._put(process, Ending(process.logical_port, process.pid, replaced_by=program))

    def registered(self, process: RegisteredProcess) -> None:
        """Remove the ending of a process if the program with which it has replaced itself has registered."""
        if self._find(process) is not None:
            del self._endings[process.logical_port]

    def _find(self, process: RegisteredProcess) -> Ending | None:
        _, ending = self._endings.get(process.logical_port, (False, None))
        return ending if ending is not None and ending.pid == process.pid else None

    def _put(self, process: RegisteredProcess, ending: Ending) -> None:
        self._endings.pop(ending.port, None)
        self._endings[ending.port] = process.was_debugged, ending
        if len(self._endings) > MAX_ENDINGS:  # the oldest one that no editor needs
            del self._endings[min(self._endings, key=lambda port: self._endings[port][0])]

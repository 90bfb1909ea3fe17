"""Whether a process has replaced itself with another program (exec), as Linux shows it to other processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from relay_agent.inject._relay_debug_programs import is_python, what_runs

__all__ = ["ProgramImage"]

INTERVAL = 0.002
"""Seconds between two readings while the kernel starts the new program."""
MAX_READINGS = 250


class ProgramImage:
    """The program that a process is running now.

    Linux passes each program random addresses in its auxiliary vector (getauxval(3)), so the vector differs after each
    exec. The command line does not identify a program, because programs may change their own.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._vector = self._read("auxv")

    def __repr__(self) -> str:
        return f"<ProgramImage of {self._pid}>"

    async def successor(self) -> str:
        """Return the name of the program with which the process has replaced itself; "" if it has not.

        To be called once an exec has closed a descriptor: the process then has its new memory, but perhaps not yet the
        vector and the command line in it.
        """
        for _ in range(MAX_READINGS):
            vector = self._read("auxv")
            if not (vector and self._vector) or vector == self._vector:
                break
            command = os.fsdecode(self._read("cmdline")).split("\0")
            if any(vector) and command[0]:
                return _name(command)
            await asyncio.sleep(INTERVAL)
        return ""

    def _read(self, name: str) -> bytes:
        try:
            return Path(f"/proc/{self._pid}/{name}").read_bytes()
        except OSError:  # it has exited, or the system has no such file
            return b""


def _name(command: list[str]) -> str:
    """Return the name of the script or module that Python runs, or else that of the program in a command line."""
    kind, name = what_runs(command) if is_python(command[0]) else ("none", "")
    return Path(name if kind in {"script", "module"} else command[0]).name

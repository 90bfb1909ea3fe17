"""Processes of the node that are not children of the agent: what Linux shows of them, and waiting for their exit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from pathlib import Path

from relay_agent.inject._relay_debug_programs import is_python, what_runs

# The exit status of a process that is not a child, as Linux shows it to other processes of the same user.
#
#     Linux 6.15   ioctl PIDFD_GET_INFO: the status stays available after the parent has collected it
#     before       /proc/PID/stat, from the moment at which the process begins to exit until its parent collects the
#                  status; it must be polled and may be missed
#
# The status is a wait status, as `os.waitstatus_to_exitcode` reads it.

_INFO = struct.Struct("=QQ11Ii")
"""struct pidfd_info of linux/pidfd.h in its first version: mask, cgroup id, eleven ids, and the status."""
_EXIT = 1 << 3
"""PIDFD_INFO_EXIT, the bit of the mask that requests the status."""
_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
"""PIDFD_GET_INFO: _IOWR(0xFF, 11, struct pidfd_info)."""


def read_status(pid: int, descriptor: int | None) -> tuple[bool, int | None]:
    """Return whether a process has exited, and its status if that is already known.

    Args:
        pid: Its process id.
        descriptor: A pidfd of the process, if the system supports pidfds.
    """
    if descriptor is not None and (status := _kept_status(descriptor)) is not None:
        return True, status
    try:
        state, status = parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except (OSError, ValueError):
        return True, _kept_status(descriptor) if descriptor is not None else None
    if state in {"Z", "X"}:
        return True, status
    return False, status or None  # 0 may only mean that the process has not begun to exit


def descends_from(pid: int, ancestor: int) -> bool:
    """Return whether a process was started by another one, or by a process that it has started, as far as is known."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # it has exited, or the system has no such file
        while pid not in {0, ancestor}:
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return pid == ancestor


def _kept_status(descriptor: int) -> int | None:
    """Return the status of a process that has exited; None before Linux 6.15, which knows no such request or bit."""
    import fcntl  # noqa: PLC0415 - not available on Windows, which has no pidfds either

    buffer = bytearray(_INFO.size)
    struct.pack_into("=Q", buffer, 0, _EXIT)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, buffer)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(buffer)
    return int(status) if mask & _EXIT else None


def parse_stat(text: str) -> tuple[str, int]:
    """Return state and status from the content of /proc/PID/stat (proc_pid_stat(5), fields 3 and 52).

    Raises:
        ValueError: the content has another form.
    """
    fields = text.rpartition(")")[2].split()  # the second field, the name, may contain anything
    if len(fields) < 50:
        raise ValueError("too few fields")
    return fields[0], int(fields[49])


# Whether a process has replaced itself with another program (exec), as Linux shows it to other processes.

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


# Waiting for the exit of a process that is not a child.

POLL_INTERVAL = 1.0
"""Seconds between checks on systems without pidfd."""
STATUS_INTERVAL = 0.002
"""Seconds between readings of the status on a system where it disappears with the process. The status can be read while
the process releases its memory, which takes a few milliseconds for a small process."""


async def until_exit(pid: int) -> None:
    """Return when a process has exited: immediately if pidfd exists (Linux 5.3), otherwise within a second."""
    with ProcessExit(pid) as process:
        await process.wait()


class ProcessExit:
    """Waits for the exit of one process; a context manager that must be entered while the process is running."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._has_ended = False
        self._descriptor: int | None = None
        if hasattr(os, "pidfd_open"):
            try:
                self._descriptor = os.pidfd_open(pid)
            except OSError:  # it has already ended
                self._has_ended = True

    def __enter__(self) -> ProcessExit:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    async def wait(self) -> None:
        """Return when the process has exited."""
        if self._descriptor is None:
            while not self._has_ended and _exists(self._pid):  # noqa: ASYNC110 - the system offers no event
                await asyncio.sleep(POLL_INTERVAL)
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._descriptor)

    async def status(self, *, within: float) -> int | None:
        """Wait until the process has exited, and return its wait status.

        None if the status is unknown or the process is still running.
        """
        deadline = asyncio.get_running_loop().time() + within
        status = None
        while True:
            is_over, found = read_status(self._pid, self._descriptor)
            status = status if found is None else found
            if is_over:
                return status
            if asyncio.get_running_loop().time() > deadline:
                return None
            await asyncio.sleep(STATUS_INTERVAL)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True

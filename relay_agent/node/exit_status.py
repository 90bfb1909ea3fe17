"""The exit status of a process that is not a child, as Linux shows it to other processes of the same user.

    Linux 6.15   ioctl PIDFD_GET_INFO: the status stays available after the parent has collected it
    before       /proc/PID/stat, from the moment at which the process begins to exit until its parent collects the
                 status; it must be polled and may be missed

The status is a wait status, as `os.waitstatus_to_exitcode` reads it.
"""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

__all__ = ["parse_stat", "read_status"]

KEPT_SINCE = (6, 15)
"""The first version of Linux that keeps the status for holders of a pidfd."""
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


def _kept_status(descriptor: int) -> int | None:
    """Return the status of a process that has exited, on Linux 6.15 or later."""
    if sys.platform != "linux" or _version() < KEPT_SINCE:
        return None
    import fcntl  # noqa: PLC0415 - not available on Windows

    buffer = bytearray(_INFO.size)
    struct.pack_into("=Q", buffer, 0, _EXIT)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, buffer)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(buffer)
    return int(status) if mask & _EXIT else None


def _version() -> tuple[int, int]:
    major, _, rest = platform.release().partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def parse_stat(text: str) -> tuple[str, int]:
    """Return state and status from the content of /proc/PID/stat (proc_pid_stat(5), fields 3 and 52).

    Raises:
        ValueError: the content has another form.
    """
    fields = text.rpartition(")")[2].split()  # the second field, the name, may contain anything
    if len(fields) < 50:
        raise ValueError("too few fields")
    return fields[0], int(fields[49])

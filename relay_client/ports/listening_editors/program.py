"""Which program is listening on a local port, for messages."""

from __future__ import annotations

import contextlib
from pathlib import Path

from relay_client.ui.text import printable
from relay_core.socket_tables import shared_tables

__all__ = ["program_on"]

PROC = Path("/proc")


def program_on(port: int) -> str:
    """Return the program that listens on a port, as in `python -m http.server (pid 4711)`; "" if unknown.

    Only Linux shows this, and only for processes of this user; for root, for all.
    """
    with contextlib.suppress(OSError):  # this is not Linux
        sockets = {f"socket:[{inode}]" for inode in shared_tables().listener_inodes(port)}
        processes = sorted((int(each.name) for each in PROC.iterdir() if each.name.isdecimal()), reverse=True)
        for pid in processes if sockets else ():
            if _has_one(pid, sockets) and (name := _name(pid)):
                return f"{name} (pid {pid})"
    return ""


def _has_one(pid: int, sockets: set[str]) -> bool:
    try:
        return any(str(each.readlink()) in sockets for each in (PROC / str(pid) / "fd").iterdir())
    except OSError:  # the process of another user, or one that has just closed a descriptor or exited
        return False


def _name(pid: int) -> str:
    """Return the program and its script or module; other arguments may be secrets."""
    with contextlib.suppress(OSError):
        program, *arguments = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        match arguments:
            case ["-m", module, *_]:
                words = [Path(program).name, "-m", module]
            case [script, *_] if script[:1] not in {"", "-"}:
                words = [Path(program).name, str(Path(*Path(script).parts[-2:]))]
            case _:
                words = [Path(program).name]
        return printable(" ".join(words))
    return ""

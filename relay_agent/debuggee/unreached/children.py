"""Finds the processes below this one that run Python and that no debugger reaches, and describes them; Linux only."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PROC = Path("/proc")
HELPERS = (
    "multiprocessing.resource_tracker",
    "debugpy/adapter",
    "pydevd",
    "relay_agent\0node-agent",
    "torch/_inductor/compile_worker",
)
"""Parts of the command lines of processes that run none of the job's code, or that are debugged already."""
FORK_SERVER = "multiprocessing.forkserver"
"""In the command lines of the server, which runs none of the job's code, and of the workers that it forks."""
_FOLLOW = 'set "subProcess": true in launch.json, and attach while the job waits (--debug-wait)'
SHOWN = 5
"""Number of process ids in a line."""

_registered: set[int] = set()


def set_registered(pids: Iterable[int]) -> None:
    """Set the process ids of the processes with their own port, which the agent sends before each attach."""
    _registered.clear()
    _registered.update(pids)


def unfollowed_children(adapter_port: int) -> list[int]:
    """Return the process ids of the Python processes below this one that neither a debugger nor an agent knows.

    Args:
        adapter_port: The port to which the debuggers of followed children are connected.
    """
    if sys.platform != "linux":
        return []
    found = list(_below(os.getpid(), children_by_parent()))
    sockets = _connections(adapter_port) - _descriptors(os.getpid()) if found else set()
    return sorted(pid for pid in found if not sockets & _descriptors(pid)) if sockets else sorted(found)


def describe(pids: Sequence[int], *, is_followed: bool) -> str:
    """Return a line about child processes.

    Args:
        pids: The process ids.
        is_followed: Whether the debugger follows the child processes that start now.
    """
    first = ", ".join(map(str, pids[:SHOWN]))
    listed = f"{first}, ..." if len(pids) > SHOWN else first
    begin = f"breakpoints are not hit in child process {listed}, which is not followed"
    if len(pids) > 1:
        begin = f"breakpoints are not hit in {len(pids)} child processes (pids {listed}), which are not followed"
    if is_followed:
        start = "it" if len(pids) == 1 else "they"
        return f"{begin}: {start} started before the debugger attached. hint: attach while the job waits (--debug-wait)"
    return f"{begin}. hint: {_FOLLOW}"


def describe_ended(pids: Iterable[int]) -> str:
    """Return a line about child processes that are not followed, and that ended soon after they were seen."""
    begin = "breakpoints are not hit in child processes that end within a second"
    return f"{begin} ({len(set(pids))} seen), which are not followed. hint: {_FOLLOW}"


def _below(parent: int, children: dict[int, list[int]], *, in_server: bool = False) -> Iterator[int]:
    for pid in children.get(parent, ()):
        if pid in _registered:
            continue
        command = _read(f"{pid}/cmdline")
        is_server = FORK_SERVER in command and not in_server
        if any(part in command for part in HELPERS):
            continue
        if not is_server and _is_python(pid):
            yield pid
        yield from _below(pid, children, in_server=in_server or is_server)


def children_by_parent() -> dict[int, list[int]]:
    """Return the children of each process, from the table of all processes; not all kernels list them by parent."""
    found = defaultdict(list)
    for process in PROC.iterdir():
        if process.name.isdigit() and (stat := _read(f"{process.name}/stat")):
            parent = stat.rpartition(")")[2].split()[1]  # proc(5): pid (name) state parent
            found[int(parent)].append(int(process.name))
    return found


def _is_python(pid: int) -> bool:
    try:
        program = (PROC / str(pid) / "exe").readlink()
        return program == (PROC / "self/exe").readlink() or program.name.startswith("python")
    except OSError:  # it has exited, or belongs to another user
        return False


def _connections(port: int) -> set[str]:
    """Return the inodes of the sockets that are connected to a local port."""
    rows = (row.split() for name in ("tcp", "tcp6") for row in _read(f"self/net/{name}").splitlines()[1:])
    return {row[9] for row in rows if int(row[2].rpartition(":")[2], 16) == port}


def _descriptors(pid: int) -> set[str]:
    """Return the inodes of the open sockets of a process."""
    found = set()
    with contextlib.suppress(OSError):  # a descriptor was closed, or the process has exited
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            if match := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                found.add(match[1])
    return found


def _read(name: str) -> str:
    try:
        return (PROC / name).read_bytes().decode(errors="replace")
    except OSError:
        return ""

"""Groups of processes with identical stacks, outliers first, and what running processes are doing as a short text."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from relay_client.ui.text import format_ports
from relay_core.agent_api import stacks
from relay_core.agent_api.stacks import Frame, NodeStacks, ProcessStacks, ThreadStack
from relay_core.records import parse
from relay_core.value_parsers import escape_controls, format_ranges

__all__ = [
    "COLLECTIVES",
    "Group",
    "Process",
    "Reply",
    "collective_of",
    "group",
    "is_library",
    "label",
    "own_frame",
    "places",
    "read_replies",
]


# Groups of processes with identical stacks, from the replies of all agents; outliers come first.
#
# When a distributed job hangs, most ranks usually wait for a few others; the stacks of those few show the cause.

_DEBUGGER = ("/debugpy/_vendored/", "/pydevd")
"""Parts of the paths of the debugger's files; at a breakpoint, the debugger's frames are a thread's innermost ones."""


@dataclass(frozen=True)
class Reply:
    """The response of one agent to a request for stacks."""

    host: str
    processes: tuple[ProcessStacks, ...] = ()
    error: str = ""
    """Why the request failed."""
    waiting: frozenset[int] = frozenset()
    """Logical ports of the processes that are announced as waiting for a debugger."""

    @classmethod
    def parse(cls, host: str, response: Mapping[str, object]) -> Reply:
        """Parse an agent's response; its text comes from a job, so control characters are escaped."""
        return cls(escape_controls(host), parse(NodeStacks, response, escape_controls).processes)

    @classmethod
    def failed(cls, host: str, error: str) -> Reply:
        """Return the reply for an agent whose request failed."""
        return cls(escape_controls(host), error=escape_controls(error))


@dataclass(frozen=True)
class Process:
    """One process, or an agent whose request failed."""

    host: str
    stacks: ProcessStacks
    waits: bool = False
    """Whether the process is waiting for a debugger."""

    @property
    def rank(self) -> int | None:
        """Its global rank."""
        return self.stacks.rank

    @property
    def main(self) -> ThreadStack | None:
        """The main thread, or the first thread if none is marked; None without a stack."""
        threads = self.stacks.threads
        return next((thread for thread in threads if thread.main), next(iter(threads), None))

    @property
    def halted(self) -> ThreadStack | None:
        """The thread that is stopped at a breakpoint or after a step, or else the main thread."""
        return next((thread for thread in self.stacks.threads if thread.stopped), self.main)

    @property
    def shown(self) -> list[ThreadStack]:
        """The main thread, and the others that are stopped at a breakpoint or after a step."""
        return [thread for thread in self.stacks.threads if thread is self.main or thread.stopped]


@dataclass(frozen=True)
class Group:
    """Processes with identical stacks."""

    processes: tuple[Process, ...]
    shared: frozenset[int] = frozenset()
    """Ranks that processes of several jobs have; such processes are distinguished by their ports."""

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sort key, outliers first: processes without a stack, then the smallest groups."""
        first = self.processes[0]
        return bool(first.stacks.threads), len(self.processes), -1 if first.rank is None else first.rank

    @property
    def label(self) -> str:
        """The processes of the group as text: `rank 3`, or `14 ranks (0-2,4-14)`."""
        ranked = [process for process in self.processes if process.rank is not None]
        others = [label(process) for process in self.processes if process.rank is None]
        if len(ranked) > 1:
            others.insert(0, f"{len(ranked)} ranks ({self._ranges(ranked)})")
        elif ranked:
            others.insert(0, label(ranked[0], self.shared))
        return ", ".join(others)

    def _ranges(self, ranked: Sequence[Process]) -> str:
        ranks = {process.rank for process in ranked if process.rank is not None}
        if ranks.isdisjoint(self.shared):
            return format_ranges(sorted(ranks))
        ports = format_ranges(sorted(process.stacks.port for process in ranked if process.stacks.port is not None))
        return f"{format_ranges(sorted(ranks))}; ports {ports}"

    @property
    def state(self) -> str:
        """A text stating on which ports the processes are waiting for a debugger; "" if they are not waiting."""
        if not self.processes[0].waits:
            return ""
        ports = [process.stacks.port for process in self.processes if process.stacks.port is not None]
        return f"waiting for a debugger on {format_ports(ports)}"

    @property
    def place(self) -> str:
        """The innermost frame of the main thread, and the innermost frame of the user's own code."""
        main = self.processes[0].main
        if main is None or not main.frames:
            return ""
        inner, own = main.frames[-1], own_frame(main)
        return _place(inner) if own is inner else f"{_place(inner)}, called in {_place(own)}"

    @property
    def reported_by(self) -> str:
        """The method by which the stacks were read; if there are several methods, each with its processes."""
        methods: dict[str, list[Process]] = {}
        for process in self.processes:
            methods.setdefault(process.stacks.how, []).append(process)
        return ", ".join(
            how if len(methods) == 1 else f"{how} ({replace(self, processes=tuple(processes)).label})"
            for how, processes in methods.items()
        )


def group(processes: Iterable[Process], *, all_threads: bool = False) -> list[Group]:
    """Group processes by identical stacks, outliers first.

    Args:
        processes: The processes, in any order.
        all_threads: Whether to compare all threads instead of only the main thread and stopped ones; the helper threads
            of libraries differ at random.
    """
    groups: dict[object, list[Process]] = {}
    ports: dict[int, set[int]] = {}
    for process in processes:
        if process.rank is not None and process.stacks.port is not None:
            ports.setdefault(process.rank, set()).add(process.stacks.port)
        groups.setdefault(_key(process, all_threads=all_threads), []).append(process)
    by_rank = (sorted(found, key=lambda p: (p.rank is None, p.rank, p.stacks.port or 0)) for found in groups.values())
    shared = frozenset(rank for rank, found in ports.items() if len(found) > 1)
    return sorted((Group(tuple(found), shared) for found in by_rank), key=lambda found: found.order)


def _key(process: Process, *, all_threads: bool) -> object:
    if process.main is None:
        return process.host, process.stacks.error
    if all_threads:
        return process.waits, _lines(process.main), tuple(sorted(_lines(thread) for thread in process.stacks.threads))
    return process.waits, tuple(map(_lines, process.shown))


def _lines(thread: ThreadStack) -> tuple[tuple[str, int, str], ...]:
    """Return the part of a stack that is compared: everything except the variables."""
    return tuple((frame.file, frame.line, frame.function) for frame in thread.frames)


def label(process: Process, shared: Collection[int] = ()) -> str:
    """Return the name of a process for users: its rank, port or host.

    Args:
        process: The process.
        shared: Ranks that processes of several jobs have; their ports are added, as in `rank 0 (port 5683)`.
    """
    port = process.stacks.port
    if process.rank is not None:
        return f"rank {process.rank}{f' (port {port})' if process.rank in shared and port is not None else ''}"
    return f"port {port}" if port is not None else process.host or "an agent"


def is_library(frame: Frame) -> bool:
    """Return True if a frame is in installed code or has no file."""
    return stacks.is_library(frame.file)


def own_frame(thread: ThreadStack) -> Frame:
    """Return the innermost frame of the user's own code, or else the innermost frame; the stack must not be empty."""
    return next((frame for frame in reversed(thread.frames) if not is_library(frame)), thread.frames[-1])


def _place(frame: Frame) -> str:
    """Return function, file name and line as text."""
    return f"{frame.function} {PurePosixPath(frame.file).name}:{frame.line}"


def read_replies(replies: Iterable[Reply], ranks: Collection[int] | None = None) -> list[Process]:
    """Return the processes in the agents' replies.

    Args:
        replies: One for each agent.
        ranks: The ranks to keep; None for all. A failed agent is always kept, because it may have any of these ranks.
    """
    processes: list[Process] = []
    for reply in replies:
        if reply.error:
            processes.append(Process(reply.host, ProcessStacks(error=reply.error)))
        for found in reply.processes:
            threads = tuple(map(_without_debugger, found.threads))
            processes.append(Process(reply.host, found._replace(threads=threads), found.port in reply.waiting))
    return [p for p in processes if ranks is None or p.stacks.port is None or p.rank in ranks]


def _without_debugger(thread: ThreadStack) -> ThreadStack:
    """Remove the innermost frames that belong to the debugger, but keep at least one frame."""
    frames = thread.frames
    while len(frames) > 1 and any(part in frames[-1].file for part in _DEBUGGER):
        frames = frames[:-1]
    return thread._replace(frames=frames)


# What running processes are doing, as a short text: `in all_reduce`, `running (train.py:52)`.

COLLECTIVES = frozenset(
    {
        *("all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "broadcast_object_list"),
        *("all_gather", "all_gather_into_tensor", "_all_gather_base", "all_gather_object", "gather", "gather_object"),
        *("reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base", "scatter", "scatter_object_list"),
        *("all_to_all", "all_to_all_single", "barrier", "monitored_barrier"),
    }
)
"""Functions of `torch.distributed` that return once all ranks of a group have called them."""


def places(reply: Reply) -> Mapping[int, str]:
    """Return what the main threads of an agent's processes are doing, by logical port.

    For a process in library code, the text names the collective operation in which it is or, if there is none, the
    innermost function, in which the process is usually waiting.
    """
    found = {process.stacks.port: _activity(process) for process in read_replies([reply])}
    return {port: place for port, place in found.items() if port is not None and place}


def _activity(process: Process) -> str:
    main = process.main
    if main is None or not main.frames:
        return ""
    inner = main.frames[-1]
    if is_library(inner):
        return f"in {collective_of(main) or inner.function}"
    return f"running ({PurePosixPath(inner.file).name}:{inner.line})"


def collective_of(thread: ThreadStack) -> str:
    """Return the collective operation that the user's code has called and that has not returned, or ""."""
    called = itertools.takewhile(is_library, reversed(thread.frames))
    names = (frame.function for frame in called if "torch/distributed/" in frame.file.replace("\\", "/"))
    return next((name for name in names if name in COLLECTIVES), "")

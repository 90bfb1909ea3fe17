"""The stacks that agents have reported, in groups of identical ones, the outliers first.

When a distributed job hangs, most ranks wait for the few that are elsewhere, and those few are the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from relay_core.agent_api.stacks import Frame, NodeStacks, ProcessStacks, ThreadStack
from relay_core.ranges import format_ranges

__all__ = ["Group", "Process", "Reply", "group", "is_library", "label", "read_replies"]

_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3.", "/lib64/python3.")
"""Parts of the paths of what is installed: the rest is what people have written."""
_DEBUGGER = ("/debugpy/_vendored/", "/pydevd")
"""The innermost frames of a thread that stands at a breakpoint are the debugger's own."""


@dataclass(frozen=True)
class Reply:
    """What one agent answered."""

    host: str
    processes: tuple[ProcessStacks, ...] = ()
    error: str = ""
    """Why it could not be asked."""

    @classmethod
    def parse(cls, host: str, answer: Mapping[str, object]) -> Reply:
        """Read an agent's answer; what it reports comes from a job, and is made harmless for a terminal."""
        return cls(_clean(host), NodeStacks.parse(answer, _clean).processes)

    @classmethod
    def failed(cls, host: str, error: str) -> Reply:
        """Return the reply of an agent that could not be asked."""
        return cls(_clean(host), error=_clean(error))


@dataclass(frozen=True)
class Process:
    """One process, or an agent that gave no answer."""

    host: str
    stacks: ProcessStacks

    @property
    def rank(self) -> int | None:
        """Its global rank."""
        return self.stacks.rank

    @property
    def main(self) -> ThreadStack | None:
        """The main thread, or what comes closest."""
        threads = self.stacks.threads
        return next((thread for thread in threads if thread.main), next(iter(threads), None))


@dataclass(frozen=True)
class Group:
    """Processes that do the same."""

    processes: tuple[Process, ...]

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sorts the odd ones to the top: who has no stack, then the smallest groups."""
        first = self.processes[0]
        return bool(first.stacks.threads), len(self.processes), -1 if first.rank is None else first.rank

    @property
    def label(self) -> str:
        """Who they are: `rank 3`, or `14 ranks (0-2,4-14)`."""
        ranks = [process.rank for process in self.processes if process.rank is not None]
        others = [label(process) for process in self.processes if process.rank is None]
        if len(ranks) > 1:
            others.insert(0, f"{len(ranks)} ranks ({format_ranges(ranks)})")
        elif ranks:
            others.insert(0, f"rank {ranks[0]}")
        return ", ".join(others)

    @property
    def place(self) -> str:
        """Where they are: the innermost function, and the line of the user's own code that led there."""
        main = self.processes[0].main
        if main is None or not main.frames:
            return ""
        inner = main.frames[-1]
        own = next((frame for frame in reversed(main.frames) if not is_library(frame)), inner)
        return _place(inner) if own is inner else f"{_place(inner)}, called in {_place(own)}"

    @property
    def seen_by(self) -> str:
        """Which way of asking had an answer, and where it differs for whom."""
        ways: dict[str, list[Process]] = {}
        for process in self.processes:
            ways.setdefault(process.stacks.how, []).append(process)
        return ", ".join(how if len(ways) == 1 else f"{how} ({Group(tuple(who)).label})" for how, who in ways.items())


def group(processes: Iterable[Process], *, all_threads: bool = False) -> list[Group]:
    """Return processes with equal stacks together, the odd ones first.

    Args:
        processes: In any order.
        all_threads: Compare all threads; by default the main ones, as helper threads of libraries differ by chance.
    """
    groups: dict[object, list[Process]] = {}
    for process in processes:
        groups.setdefault(_key(process, all_threads=all_threads), []).append(process)
    by_rank = (sorted(found, key=lambda p: (p.rank is None, p.rank, p.stacks.port or 0)) for found in groups.values())
    return sorted((Group(tuple(found)) for found in by_rank), key=lambda found: found.order)


def _key(process: Process, *, all_threads: bool) -> object:
    if process.main is None:
        return process.host, process.stacks.error
    if all_threads:
        return _lines(process.main), tuple(sorted(_lines(thread) for thread in process.stacks.threads))
    return _lines(process.main)


def _lines(thread: ThreadStack) -> tuple[tuple[str, int, str], ...]:
    """Return what counts when stacks are compared: not the variables."""
    return tuple((frame.file, frame.line, frame.function) for frame in thread.frames)


def label(process: Process) -> str:
    """Return how people know a process."""
    if process.rank is not None:
        return f"rank {process.rank}"
    port = process.stacks.port
    return f"port {port}" if port is not None else process.host or "an agent"


def is_library(frame: Frame) -> bool:
    """Whether a frame is in installed code, or in none at all."""
    return frame.file.startswith("<") or any(part in frame.file for part in _LIBRARIES)


def _place(frame: Frame) -> str:
    """Return the function, file and line in few words."""
    return f"{frame.function} {PurePosixPath(frame.file).name}:{frame.line}"


def read_replies(replies: Iterable[Reply], ranks: Collection[int] | None = None) -> list[Process]:
    """Return the processes that agents have reported.

    Args:
        replies: One for each agent.
        ranks: Whom to keep; None for all. An agent that gave no answer may have any of them, and is kept.
    """
    processes: list[Process] = []
    for reply in replies:
        if reply.error:
            processes.append(Process(reply.host, ProcessStacks(error=reply.error)))
        for found in reply.processes:
            threads = tuple(map(_without_debugger, found.threads))
            processes.append(Process(reply.host, found._replace(threads=threads)))
    return [p for p in processes if ranks is None or p.stacks.port is None or p.rank in ranks]


def _without_debugger(thread: ThreadStack) -> ThreadStack:
    """Leave out the frames in which the debugger waits, but keep one frame."""
    frames = thread.frames
    while len(frames) > 1 and any(part in frames[-1].file for part in _DEBUGGER):
        frames = frames[:-1]
    return thread._replace(frames=frames)


def _clean(text: str) -> str:
    """Return text that cannot steer a terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)

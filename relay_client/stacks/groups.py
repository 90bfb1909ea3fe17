"""What agents tell of the stacks of their processes, read and put into groups of equal ones, the odd ones first.

When a distributed job hangs, most ranks wait for the few that are elsewhere, and those few are the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from relay_client.cli.port_ranges import format_ports

__all__ = ["Frame", "Group", "Process", "Reply", "Thread", "group", "label", "read_replies"]

Reply = Mapping[str, Any]
"""What an agent answers to OPEN "stacks", and `"host"`; or `"host"` and `"error"` where it could not be asked."""

_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3.", "/lib64/python3.")
"""Parts of the paths of what is installed: the rest is what people have written."""
_DEBUGGER = ("/debugpy/_vendored/", "/pydevd")
"""The innermost frames of a thread that stands at a breakpoint are the debugger's own."""


@dataclass(frozen=True)
class Frame:
    """One line of a stack; the variables do not count when stacks are compared."""

    file: str
    line: int
    function: str
    locals: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def is_library(self) -> bool:
        """Whether it is in installed code, or in none at all."""
        return self.file.startswith("<") or any(part in self.file for part in _LIBRARIES)

    @property
    def place(self) -> str:
        """The function, file and line in few words."""
        return f"{self.function} {PurePosixPath(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Thread:
    """One thread; its frames have the innermost last."""

    name: str
    main: bool
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Process:
    """One process, or an agent that gave no answer."""

    rank: int | None
    port: int | None
    pid: int | None
    host: str
    how: str
    """Who has seen it, in the agent's words; "none" if nobody could."""
    error: str
    threads: tuple[Thread, ...]

    @property
    def main(self) -> Thread | None:
        """The main thread, or what comes closest."""
        return next((thread for thread in self.threads if thread.main), next(iter(self.threads), None))


@dataclass(frozen=True)
class Group:
    """Processes that do the same."""

    processes: tuple[Process, ...]

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sorts the odd ones to the top: who has no stack, then the smallest groups."""
        first = self.processes[0]
        return bool(first.threads), len(self.processes), -1 if first.rank is None else first.rank

    @property
    def label(self) -> str:
        """Who they are: `rank 3`, or `14 ranks (0-2,4-14)`."""
        ranks = [process.rank for process in self.processes if process.rank is not None]
        others = [label(process) for process in self.processes if process.rank is None]
        if len(ranks) > 1:
            others.insert(0, f"{len(ranks)} ranks ({format_ports(ranks)})")
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
        own = next((frame for frame in reversed(main.frames) if not frame.is_library), inner)
        return inner.place if own is inner else f"{inner.place}, called in {own.place}"

    @property
    def seen_by(self) -> str:
        """Which way of asking had an answer, and where it differs for whom."""
        ways: dict[str, list[Process]] = {}
        for process in self.processes:
            ways.setdefault(process.how, []).append(process)
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
    by_rank = (sorted(found, key=lambda p: (p.rank is None, p.rank, p.port or 0)) for found in groups.values())
    return sorted((Group(tuple(found)) for found in by_rank), key=lambda found: found.order)


def _key(process: Process, *, all_threads: bool) -> object:
    if process.main is None:
        return process.host, process.error
    if all_threads:
        return process.main.frames, tuple(sorted(_lines(thread) for thread in process.threads))
    return process.main.frames


def _lines(thread: Thread) -> tuple[tuple[str, int, str], ...]:
    return tuple((frame.file, frame.line, frame.function) for frame in thread.frames)


def label(process: Process) -> str:
    """Return how people know a process."""
    if process.rank is not None:
        return f"rank {process.rank}"
    return f"port {process.port}" if process.port is not None else process.host or "an agent"


# The wire


def read_replies(replies: Iterable[Reply], ranks: Collection[int] | None = None) -> list[Process]:
    """Return the processes that agents have told of; fields of an unexpected kind read as absent.

    Args:
        replies: One for each agent.
        ranks: Whom to keep; None for all. An agent that gave no answer may have any of them, and is kept.
    """
    processes = []
    for reply in replies:
        host = _clean(reply.get("host", ""))
        if reply.get("error"):
            processes.append(Process(None, None, None, host, "none", _clean(reply["error"]), ()))
        processes += [_read_process(found, host) for found in _objects(reply.get("processes"))]
    return [process for process in processes if ranks is None or process.port is None or process.rank in ranks]


def _read_process(found: Mapping[str, Any], host: str) -> Process:
    return Process(
        rank=_number(found.get("rank")),
        port=_number(found.get("port")),
        pid=_number(found.get("pid")),
        host=host,
        how=_clean(found.get("how", "none")),
        error=_clean(found.get("error", "")),
        threads=tuple(_read_thread(thread) for thread in _objects(found.get("threads"))),
    )


def _read_thread(found: Mapping[str, Any]) -> Thread:
    frames = [_read_frame(frame) for frame in _objects(found.get("frames"))]
    while len(frames) > 1 and any(part in frames[-1].file for part in _DEBUGGER):
        frames.pop()
    return Thread(_clean(found.get("name", "?")), bool(found.get("main")), tuple(frames))


def _read_frame(found: Mapping[str, Any]) -> Frame:
    values = found.get("locals")
    texts = {_clean(name): _clean(text) for name, text in values.items()} if isinstance(values, dict) else {}
    return Frame(_clean(found.get("file", "?")), _number(found.get("line")) or 0, _clean(found.get("function")), texts)


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _clean(text: object) -> str:
    """Return text that cannot steer a terminal: it comes from a job."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(text))

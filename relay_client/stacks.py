"""The stacks of many processes: collected from all agents, grouped, and rendered as text or JSON."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from relay_client.agents.requests import NodeReply, ask_agents, with_absent
from relay_client.agents.tunnels import Tunnels
from relay_client.ranks.view import Kind, rank_view
from relay_client.ui.text import format_ports
from relay_core.agent_api import stacks
from relay_core.agent_api.questions import NodeReplies, ReadStacks, Reply
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.foreign import escape_controls
from relay_core.grouping import by_key
from relay_core.records import encode, parse
from relay_core.value_parsers import format_ranges

# Groups of processes with identical stacks, from the replies of all agents; outliers come first.
#
# When a distributed job hangs, most ranks usually wait for a few others; the stacks of those few show the cause.

HELD = {
    Kind.WAITING: "waiting for a debugger",
    Kind.CRASHED: "held at an exception for a debugger",
    Kind.STOPPED: "stopped by a debugger",
}
"""Texts for processes that a debugger, or the wait for one, holds."""
_DEBUGGER = ("/debugpy/_vendored/", "/pydevd")
"""Parts of the paths of the debugger's files; at a breakpoint, the debugger's frames are a thread's innermost ones."""


@dataclass(frozen=True)
class Process:
    """One process, or an agent whose request failed."""

    host: str
    stacks: ProcessStacks
    port: int | None = None
    """The logical port; None for an agent."""
    rank: int | None = None
    pid: int | None = None
    held: str = ""
    """How a debugger, or the wait for one, holds the process; "" if nothing holds it."""

    @classmethod
    def of(cls, reply: Reply, host: str = "", *, held: str = "") -> Process:
        """Return the process of a reply; its text comes from a job, so control characters are escaped."""
        answer = reply.answer if reply.stacks is None else reply.stacks
        found = parse(ProcessStacks, answer or {"error": reply.error}, escape_controls)
        threads = tuple(map(_without_debugger, found.threads))
        return cls(host, found._replace(threads=threads), reply.port, reply.rank, reply.pid, held)

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
        ports = format_ranges(sorted(process.port for process in ranked if process.port is not None))
        return f"{format_ranges(sorted(ranks))}; ports {ports}"

    @property
    def state(self) -> str:
        """How a debugger, or the wait for one, holds the processes, and their ports; "" if nothing holds them."""
        if not (held := self.processes[0].held):
            return ""
        ports = [process.port for process in self.processes if process.port is not None]
        return f"{held} on {format_ports(ports)}"

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
        methods = by_key((process.stacks.how, process) for process in self.processes)
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
    processes = list(processes)
    groups = by_key((_key(process, all_threads=all_threads), process) for process in processes)
    ports = by_key((one.rank, one.port) for one in processes if one.rank is not None and one.port is not None)
    by_rank = (sorted(found, key=lambda p: (p.rank is None, p.rank, p.port or 0)) for found in groups.values())
    shared = frozenset(rank for rank, found in ports.items() if len({*found}) > 1)
    return sorted((Group(tuple(found), shared) for found in by_rank), key=lambda found: found.order)


def _key(process: Process, *, all_threads: bool) -> object:
    if process.main is None:
        return process.host, process.stacks.error
    if all_threads:
        return process.held, _lines(process.main), tuple(sorted(_lines(thread) for thread in process.stacks.threads))
    return process.held, tuple(map(_lines, process.shown))


def _lines(thread: ThreadStack) -> tuple[tuple[str, int, str], ...]:
    """Return the part of a stack that is compared: everything except the variables."""
    return tuple((frame.file, frame.line, frame.function) for frame in thread.frames)


def label(process: Process, shared: Collection[int] = ()) -> str:
    """Return the name of a process for users: its rank, port or host.

    Args:
        process: The process.
        shared: Ranks that processes of several jobs have; their ports are added, as in `rank 0 (port 5683)`.
    """
    port = process.port
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


def read_replies(nodes: Iterable[NodeReply]) -> list[Process]:
    """Return the processes in the agents' replies; an agent that has failed is one, as it may have any of the ranks."""
    processes: list[Process] = []
    for node in nodes:
        host = escape_controls(node.agent.host)
        held = {target.port: HELD.get(rank_view(target).kind, "") for target in node.agent.targets}
        processes += [Process(host, ProcessStacks(error=node.error))] if node.error else []
        processes += [Process.of(reply, host, held=held.get(reply.port, "")) for reply in node.replies.processes]
    return processes


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


def places(replies: NodeReplies) -> Mapping[int, str]:
    """Return what the main threads of a node's processes are doing, by logical port.

    For a process in library code, the text names the collective operation in which it is or, if there is none, the
    innermost function, in which the process is usually waiting.
    """
    found = {reply.port: _activity(Process.of(reply)) for reply in replies.processes}
    return {port: place for port, place in found.items() if place}


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


async def collect_stacks(tunnels: Tunnels, ranks: str, *, with_locals: bool) -> list[NodeReply]:
    """Return the stacks of the chosen ranks, from each connected agent, and those of the ranks that are not found.

    Args:
        tunnels: The client's tunnels, after all agents have been found.
        ranks: A list of ranks, or "all".
        with_locals: Whether to include local variables.
    """
    question = ReadStacks(ranks=ranks, locals=with_locals)
    return with_absent(tunnels, question, await ask_agents(tunnels, question))


# Renders grouped stacks as text, with colours on a terminal, or as JSON.


def show_stacks(
    replies: Iterable[NodeReply],
    *,
    locals: bool = False,  # noqa: A002 - its name in the protocol and as an option
    all_threads: bool = False,
    color: bool = False,
) -> str:
    """Return the stacks as text, one paragraph for each group of identical stacks.

    Args:
        replies: One for each agent.
        locals: Whether to show the variables in the replies; each group shows those of its first process.
        all_threads: Whether to compare and show all threads instead of only the main thread and stopped ones.
        color: Whether to add terminal colours; requires rich.
    """
    groups = group(read_replies(replies), all_threads=all_threads)
    if not groups:
        return "no matching process"
    is_only_group = len(groups) == 1 and len(groups[0].processes) > 1
    lines: list[tuple[str, str]] = []
    for found in groups:
        paragraph = _paragraph(found, is_only_group=is_only_group, with_locals=locals, all_threads=all_threads)
        lines += [("", ""), *paragraph]
    return _colored(lines[1:]) if color else "\n".join(text for text, _ in lines[1:])


def grouped_stacks(replies: Iterable[NodeReply], *, all_threads: bool = False) -> list[dict[str, object]]:
    """Return the groups as JSON objects, with the threads of each group's first process; see `_as_object`."""
    return [_as_object(found) for found in group(read_replies(replies), all_threads=all_threads)]


def _as_object(found: Group) -> dict[str, object]:
    first = found.processes[0].stacks
    return {
        "ranks": [one.rank for one in found.processes if one.rank is not None],
        "ports": [one.port for one in found.processes if one.port is not None],
        "pids": [one.pid for one in found.processes if one.pid is not None],
        "hosts": sorted({process.host for process in found.processes if process.host}),
        "place": found.place,
        "state": found.state,
        "how": found.reported_by,
        "error": first.error,
        "threads": [_thread_as_object(thread) for thread in first.threads],
    }


def _thread_as_object(thread: ThreadStack) -> dict[str, object]:
    frames = frames_as_objects(thread.frames)
    return {"name": thread.name, "main": thread.main, "stopped": thread.stopped, "frames": frames}


def frames_as_objects(frames: Iterable[Frame]) -> list[dict[str, object]]:
    """Return frames as JSON objects, each with its variables, even if there are none."""
    return [{**encode(frame), "locals": dict(frame.locals)} for frame in frames]


def _paragraph(found: Group, *, is_only_group: bool, with_locals: bool, all_threads: bool) -> list[tuple[str, str]]:
    """Return the lines of one group, each with its style."""
    first = found.processes[0]
    name = f"all {found.label}" if is_only_group else found.label
    if len(found.processes) == 1 and first.host and first.port is not None:
        name += f" on {first.host}"
    if first.main is None:
        return [(f"{name}: no stack: {first.stacks.error or 'no reason given'}", "bold red")]
    notes = [f"reported by {found.reported_by}"] if found.reported_by != stacks.HELPER_THREAD else []
    if with_locals and len(found.processes) > 1:
        notes.append(f"variables of {label(first, found.shared)}")
    state = f", {found.state}," if found.state else ""
    lines = [(f"{name}{state} in {found.place or 'no Python code'}", "bold")]
    lines += [(f"  {'; '.join(notes)}", "dim")] if notes else []
    shown = first.stacks.threads if all_threads else first.shown
    for thread in shown:
        if len(shown) > 1 or all_threads:
            state = ", stopped" if thread.stopped else ""
            lines.append((f"  thread {thread.name}{state}", "italic"))
        lines += frame_lines(thread.frames, with_locals=with_locals)
    others = len(first.stacks.threads) - len(shown)
    if others:
        lines.append((f"  and {others} other thread{'s' if others > 1 else ''}", "dim"))
    return lines


def frame_lines(frames: Sequence[Frame], *, with_locals: bool) -> list[tuple[str, str]]:
    """Return one line for each frame, and for each of its variables, each with its style."""
    lines = []
    for frame in frames:
        lines.append((f"    {frame.file}:{frame.line} {frame.function}", "dim" if is_library(frame) else ""))
        if with_locals:
            lines += [(f"        {name} = {text}", "cyan") for name, text in frame.locals.items()]
    return lines


def _colored(lines: Sequence[tuple[str, str]]) -> str:
    from rich.console import Console  # noqa: PLC0415 - needed only on a terminal
    from rich.text import Text  # noqa: PLC0415 - as above

    # A relay-client that answers a command is in another environment than the terminal of the command.
    console = Console(force_terminal=True, soft_wrap=True, color_system="standard", no_color=False)
    with console.capture() as capture:
        for text, style in lines:
            console.print(Text(text, style=style))
    return capture.get().rstrip("\n")

"""Renders grouped stacks as text, with colours on a terminal, or as JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from relay_client.stacks.groups import Group, Reply, group, is_library, label, read_replies
from relay_core.agent_api.stacks import Frame, ThreadStack
from relay_core.records import encode

__all__ = ["grouped_stacks", "show_stacks"]


def show_stacks(
    replies: Iterable[Reply],
    *,
    ranks: Collection[int] | None = None,
    locals: bool = False,  # noqa: A002 - its name in the protocol and as an option
    all_threads: bool = False,
    color: bool = False,
) -> str:
    """Return the stacks as text, one paragraph for each group of identical stacks.

    Args:
        replies: One for each agent.
        ranks: The ranks to show; None for all.
        locals: Whether to show the variables in the replies; each group shows those of its first process.
        all_threads: Whether to compare and show all threads instead of only the main thread and stopped ones.
        color: Whether to add terminal colours; requires rich.
    """
    groups = group(read_replies(replies, ranks), all_threads=all_threads)
    if not groups:
        return "no matching process"
    is_only_group = len(groups) == 1 and len(groups[0].processes) > 1
    lines: list[tuple[str, str]] = []
    for found in groups:
        paragraph = _paragraph(found, is_only_group=is_only_group, with_locals=locals, all_threads=all_threads)
        lines += [("", ""), *paragraph]
    return _colored(lines[1:]) if color else "\n".join(text for text, _ in lines[1:])


def grouped_stacks(
    replies: Iterable[Reply], *, ranks: Collection[int] | None = None, all_threads: bool = False
) -> list[dict[str, object]]:
    """Return the groups as JSON objects, with the threads of each group's first process; see `_as_object`."""
    return [_as_object(found) for found in group(read_replies(replies, ranks), all_threads=all_threads)]


def _as_object(found: Group) -> dict[str, object]:
    first = found.processes[0].stacks
    stacks = [process.stacks for process in found.processes]
    return {
        "ranks": [one.rank for one in stacks if one.rank is not None],
        "ports": [one.port for one in stacks if one.port is not None],
        "pids": [one.pid for one in stacks if one.pid is not None],
        "hosts": sorted({process.host for process in found.processes if process.host}),
        "place": found.place,
        "state": found.state,
        "how": found.reported_by,
        "error": first.error,
        "threads": [_thread_as_object(thread) for thread in first.threads],
    }


def _thread_as_object(thread: ThreadStack) -> dict[str, object]:
    frames = [{**encode(frame), "locals": dict(frame.locals)} for frame in thread.frames]
    return {"name": thread.name, "main": thread.main, "stopped": thread.stopped, "frames": frames}


def _paragraph(found: Group, *, is_only_group: bool, with_locals: bool, all_threads: bool) -> list[tuple[str, str]]:
    """Return the lines of one group, each with its style."""
    first = found.processes[0]
    name = f"all {found.label}" if is_only_group else found.label
    if len(found.processes) == 1 and first.host and first.stacks.port is not None:
        name += f" on {first.host}"
    if first.main is None:
        return [(f"{name}: no stack: {first.stacks.error or 'no reason given'}", "bold red")]
    note = f"; variables of {label(first, found.shared)}" if with_locals and len(found.processes) > 1 else ""
    state = f", {found.state}," if found.state else ""
    lines = [
        (f"{name}{state} in {found.place or 'no Python code'}", "bold"),
        (f"  reported by {found.reported_by}{note}", "dim"),
    ]
    shown = first.stacks.threads if all_threads else first.shown
    for thread in shown:
        if len(shown) > 1 or all_threads:
            state = ", stopped" if thread.stopped else ""
            lines.append((f"  thread {thread.name}{state}", "italic"))
        lines += _frame_lines(thread.frames, with_locals=with_locals)
    others = len(first.stacks.threads) - len(shown)
    if others:
        lines.append((f"  and {others} other thread{'s' if others > 1 else ''}", "dim"))
    return lines


def _frame_lines(frames: Sequence[Frame], *, with_locals: bool) -> list[tuple[str, str]]:
    lines = []
    for frame in frames:
        lines.append((f"    {frame.file}:{frame.line} {frame.function}", "dim" if is_library(frame) else ""))
        if with_locals:
            lines += [(f"        {name} = {text}", "cyan") for name, text in frame.locals.items()]
    return lines


def _colored(lines: Sequence[tuple[str, str]]) -> str:
    from rich.console import Console  # noqa: PLC0415 - needed only on a terminal
    from rich.text import Text  # noqa: PLC0415 - as above

    console = Console(force_terminal=True, soft_wrap=True)
    with console.capture() as capture:
        for text, style in lines:
            console.print(Text(text, style=style))
    return capture.get().rstrip("\n")

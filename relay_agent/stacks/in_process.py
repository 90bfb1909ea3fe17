"""What every thread of this process is doing: for a job that hangs.

Two ways lead to an answer. `collect` runs in a helper thread of the job and sees everything, as long as somebody
releases the GIL now and then. `register_dump` lets the node's agent ask by a signal, which faulthandler answers in C,
also while C code holds the GIL; `relay_agent.stacks.out_of_process` is the agent's half. Nothing here may disturb the
job.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from types import FrameType, TracebackType
from typing import NamedTuple

from relay_core.agent_api.stacks import Frame, ThreadStack

__all__ = ["MAX_FRAMES", "MAX_THREADS", "collect", "is_helper", "register_dump"]

MAX_FRAMES = 100
"""Frames of one thread, the innermost: as many as faulthandler shows, so that both ways give equal stacks."""
MAX_THREADS = 100
"""Threads of one process, also faulthandler's limit; a line to the agent holds them."""

_OURS = PurePath(__file__).parent.parent
_WAITING = {"threading.py", "contextlib.py"}
"""What relay-agent and debugpy wait in."""
_Place = tuple[FrameType, "int | None"]
_FIRST_SIGNAL = 10
"""Offset from SIGRTMIN: the lowest and the highest real-time signals are what other tools take."""


def collect(locals: bool = False) -> list[ThreadStack]:  # noqa: A002 - so it is called on the wire and on the command line
    """Return what the threads of this process are doing, the main thread first.

    Threads of relay-agent and of debugpy are left out, and so is the calling one unless it is the main thread. Of a
    thread that waits for a debugger, or stands for one, the job's code is shown; after a crash, what raised.

    Args:
        locals: Also describe the variables; whatever their `__repr__` does, this takes half a second at most.
    """
    main, caller = threading.main_thread().ident, threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: list[tuple[int, list[_Place]]] = []
    crash = sys.modules.get("relay_agent.debuggee.post_mortem")
    raised = crash.tracebacks() if crash is not None else {}
    for ident, top in sorted(sys._current_frames().items(), key=lambda item: item[0] != main):  # noqa: SLF001 - its documented name
        stack = list(_outwards(top))
        if ident != main and (ident == caller or is_helper([frame.f_code.co_filename for frame in reversed(stack)])):
            continue
        found.append((ident, _own_places(stack, raised.get(ident))[:MAX_FRAMES]))
        if len(found) == MAX_THREADS:
            break
    values: Iterator[Mapping[str, str]] = itertools.repeat({})
    if locals:
        from relay_agent.stacks.local_values import describe_locals  # noqa: PLC0415 - needed when asked for only

        values = iter(describe_locals([frame for _, places in found for frame, _ in places]))
    threads = []
    for ident, places in found:
        frames = [_describe(*place, next(values)) for place in places]
        name = names.get(ident, f"thread {ident:#x}")
        threads.append(ThreadStack(name, ident, ident == main, tuple(frames[::-1])))
    return threads


def is_helper(files: list[str]) -> bool:
    """Whether a thread other than the main one is relay-agent's or debugpy's, by the files of its stack.

    Args:
        files: The innermost last.
    """
    return _is_debugging(next((file for file in files if PurePath(file).name != "threading.py"), ""))


def _is_debugging(file: str) -> bool:
    path = PurePath(file)
    return path.is_relative_to(_OURS) or "debugpy" in path.parts


def _own_places(stack: list[FrameType], raised: TracebackType | None) -> list[_Place]:
    """Return where a thread's own code is, the innermost place first.

    Args:
        stack: As it is now.
        raised: Of an exception that has left the job's code, and is held.
    """
    inner = [frame.f_code.co_filename for frame in stack]
    waits = list(itertools.takewhile(lambda file: _is_debugging(file) or PurePath(file).name in _WAITING, inner))
    own = stack[len(waits) :] if any(map(_is_debugging, waits)) else stack
    if raised is None:
        return [(frame, frame.f_lineno) for frame in own]
    places: list[_Place] = []
    while raised is not None:
        if not _is_debugging(raised.tb_frame.f_code.co_filename):
            places.append((raised.tb_frame, raised.tb_lineno))
        raised = raised.tb_next
    first = places[0][0] if places else None
    outer = own[own.index(first) + 1 :] if first in own else own
    return [*places[::-1], *((frame, frame.f_lineno) for frame in outer)]


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _describe(frame: FrameType, line: int | None, values: Mapping[str, str]) -> Frame:
    code = frame.f_code
    # A frame between two lines has none.
    return Frame(code.co_filename, line or code.co_firstlineno, code.co_name, values)


class _Registered(NamedTuple):
    """Where faulthandler writes when the signal comes."""

    signal: int
    path: Path
    descriptor: int
    inode: int
    """By which the descriptor is known: a job may close what it did not open, and open something else there."""


_registered: _Registered | None = None


def register_dump(path: Path) -> int | None:
    """Let a signal write the stacks of all threads to a file, and return its number; None where that cannot be.

    The file, in a directory that only this user can enter, begins with a line of JSON by which the agent makes sure
    that the signal still means this: `{"pid", "main", "descriptor"}`. Calling this again moves to another file, also in
    a forked child, which inherits the signal.

    Raises:
        OSError: the file cannot be made.
    """
    global _registered  # noqa: PLW0603 - so is faulthandler's own state
    number = _registered.signal if _registered else _find_free_signal()
    if number is None:
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)  # not inherited through exec: that is how the agent sees one
    header = {"pid": os.getpid(), "main": threading.main_thread().ident, "descriptor": descriptor}
    os.write(descriptor, json.dumps(header).encode() + b"\n")
    _write_to(descriptor, number)
    _registered = _Registered(number, path, descriptor, os.fstat(descriptor).st_ino)
    return number


def _write_to(descriptor: int, number: int) -> None:
    """Point faulthandler to a descriptor, and close the one before it."""
    faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
    if _registered is not None:
        with contextlib.suppress(OSError):  # the job has closed it
            if os.fstat(_registered.descriptor).st_ino == _registered.inode:
                os.close(_registered.descriptor)


def _find_free_signal() -> int | None:
    """Return a real-time signal that nobody catches, ignores or blocks, in Python or in C."""
    if not hasattr(signal, "SIGRTMIN") or not hasattr(faulthandler, "register"):
        return None
    taken = 0
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(("SigBlk:", "SigIgn:", "SigCgt:")):
                taken |= int(line.split()[1], 16)
    except OSError:
        return None
    candidates = range(signal.SIGRTMIN + _FIRST_SIGNAL, signal.SIGRTMAX)
    return next((number for number in candidates if not taken >> (number - 1) & 1), None)

"""Collects the stacks of another process's threads, through the first of three methods that works for a hung process.

    method          works while the process is                            needs
    helper thread   in Python, or in C code that has released the GIL     a registered process: the question `stacks`
    faulthandler    in C code that holds the GIL                          the signal of `relay_agent.stacks.in_process`
    py-spy          stuck without having registered a signal              py-spy installed, ptrace allowed

The signal is sent only if the process certainly still handles it, because the signal's default action terminates a
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from relay_agent.stacks.in_process import is_helper
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack, public_name
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import output_of

DUMP_TIMEOUT = 2.0
"""Timeout in seconds for a dump after the signal; faulthandler needs a millisecond once a thread of the process is
scheduled."""
PY_SPY_TIMEOUT = 5.0
"""Timeout in seconds for py-spy, which reads the symbols of the interpreter, possibly from a slow disk."""
POLL_INTERVAL = 0.01
MAX_DUMP = 4 * 1024 * 1024
"""Maximum number of bytes read from a dump; a hundred threads with a hundred frames each need a quarter of this."""

_STATES = {
    "T": "it is stopped by a signal; to resume it, run 'kill -CONT PID' on its node",
    "D": "it is waiting in the kernel for a device or a file system",
    "Z": "it has exited",
}
"""Reasons that explain a failure of all methods, by the process state in /proc."""
_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-fA-F]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')


@dataclass(frozen=True)
class Dump:
    """The dump signal of a process; the same object for as long as the process is registered.

    Args:
        path: The file that the process passed to `register_dump`.
        signal: The return value of `register_dump`.
    """

    path: Path
    signal: int
    in_use: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False, repr=False)
    """Held during a dump, because concurrent dumps would be mixed in the file."""


async def stacks_from_outside(
    pid: int,
    reason: str,
    dump: Dump | None,
    *,
    locals: bool = False,  # noqa: A002 - its name in the protocol and as an option
) -> ProcessStacks:
    """Return the stacks of a process whose helper thread has not answered, from the first method that succeeds.

    Args:
        pid: A process of this user on this machine.
        reason: Why the helper thread has not answered.
        dump: The registered dump signal, or None.
        locals: Also request local variables from py-spy; faulthandler does not provide variables.

    Returns:
        The stacks, or the reasons of all failures.
    """
    methods: dict[str, Callable[[], Awaitable[list[ThreadStack]]]] = {
        "faulthandler": partial(_ask_by_signal, pid, dump),
        "py-spy": partial(_ask_py_spy, pid, with_locals=locals),
    }
    reasons = [reason]
    for how, method in methods.items():
        try:
            return ProcessStacks(how, tuple(await method()))
        except RelayDebugError as error:
            reasons.append(error.sentence)
        except (OSError, ValueError, KeyError, TypeError) as error:  # an unreadable file, or a malformed response
            reasons.append(f"{how}: {type(error).__name__}: {error}")
    state = _STATES.get(_status(pid).get("State", "Z")[:1])
    return ProcessStacks(error=state or "; ".join(reasons))


# The signal


async def _ask_by_signal(pid: int, dump: Dump | None) -> list[ThreadStack]:
    if dump is None:
        raise RelayDebugError("it has not registered a signal for stack dumps")
    async with dump.in_use:
        with _signal_sender(pid) as kill:
            header, main = _check(pid, dump)
            os.truncate(dump.path, header)  # a dump that arrived after the timeout of an earlier request
            unblocked = {thread for thread, blocks in _threads(pid, dump.signal) if not blocks}
            kill(dump.signal)
            text = await _read_dump(pid, dump, header, unblocked)
            os.truncate(dump.path, header)
    return parse_dump(text, main)


@contextlib.contextmanager
def _signal_sender(pid: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that sends a signal to this process, and never to a later one with the same process id."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise RelayDebugError("it has exited") from None
    except (OSError, AttributeError):  # Linux before 5.3, a sandbox, or another system
        yield lambda number: os.kill(pid, number)
        return
    try:
        yield lambda number: signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def _check(pid: int, dump: Dump) -> tuple[int, int]:
    """Check that the process still handles the dump signal; return the header's length and the main thread's ident.

    The process must catch the signal and must still have the file open: exec closes it, and so does
    `relay_agent.stacks.in_process` before the job's code sets a handler of its own for the signal.

    Raises:
        RelayDebugError: the process does not handle the signal.
    """
    with dump.path.open("rb") as file:
        line = file.readline(4096)
        identity = os.fstat(file.fileno())
    header = json.loads(line)
    caught = int(_status(pid).get("SigCgt", "0"), 16) >> (dump.signal - 1) & 1
    opened = False
    with contextlib.suppress(OSError):
        opened = os.path.samestat(identity, Path(f"/proc/{pid}/fd/{int(header['descriptor'])}").stat())
    if not caught or not opened or header["pid"] != pid:
        raise RelayDebugError(
            "it no longer handles the signal for stack dumps (its program uses the signal, or it was replaced by "
            "exec or is exiting)"
        )
    return len(line), int(header["main"])


async def _read_dump(pid: int, dump: Dump, header: int, unblocked: set[str]) -> str:
    """Wait until the dump is complete, that is, until no thread is in the signal handler any longer, and return it.

    A handler runs with its own signal blocked, and /proc shows the blocked signals of each thread.

    Args:
        pid: The process.
        dump: Its dump signal and file.
        header: Length of the file's first line.
        unblocked: The threads that were not blocking the signal before it was sent.
    """
    try:
        async with timeout(DUMP_TIMEOUT):
            while True:
                written = dump.path.stat().st_size > header
                if written and not any(blocks for thread, blocks in _threads(pid, dump.signal) if thread in unblocked):
                    break
                await asyncio.sleep(POLL_INTERVAL)
    except TIMEOUT_ERRORS:
        raise RelayDebugError(f"it did not respond to a signal within {DUMP_TIMEOUT:g} s") from None
    with dump.path.open("rb") as file:
        file.seek(header)
        return file.read(MAX_DUMP).decode(errors="replace")


def _threads(pid: int, number: int) -> Iterator[tuple[str, bool]]:
    """Yield the id of each thread, and whether it blocks a signal."""
    with contextlib.suppress(OSError):  # the process is exiting
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a process may have thousands, and this is faster
            yield thread, bool(int(_status(f"{pid}/task/{thread}").get("SigBlk", "0"), 16) >> (number - 1) & 1)


def _status(process: int | str) -> dict[str, str]:
    """Return the fields of /proc/PROCESS/status; none if there is no such process."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return {}


def parse_dump(text: str, main: int = 0) -> list[ThreadStack]:
    """Parse faulthandler's output; lines of any other form are ignored.

    Args:
        text: The newest thread first, and in each thread the innermost frame first.
        main: The main thread's ident; 0 if unknown.

    Returns:
        The same as `relay_agent.stacks.in_process.collect`, without variables; most threads have no name.
    """
    threads: list[ThreadStack] = []
    for line in text.splitlines():
        if match := _THREAD.fullmatch(line):
            ident = int(match[1], 16)
            name = match[2] or _name(ident, ident == main)
            threads.append(ThreadStack(name, ident, ident == main, ()))
        elif threads and (match := _FRAME.fullmatch(line)):
            number = int(match[2]) if match[2].isdigit() else 0
            frames = (Frame(match[1], number, match[3]), *threads[-1].frames)
            threads[-1] = threads[-1]._replace(frames=frames)
    return _in_order(threads)


def _name(ident: int, main: bool) -> str:
    return "MainThread" if main else f"thread {ident:#x}"


def _in_order(threads: list[ThreadStack]) -> list[ThreadStack]:
    """Return the job's own threads, the main thread first."""
    jobs = [thread for thread in threads if thread.main or not is_helper([frame.file for frame in thread.frames])]
    return [_with_public_names(thread) for thread in sorted(jobs, key=lambda thread: not thread.main)]


def _with_public_names(thread: ThreadStack) -> ThreadStack:
    return thread._replace(frames=tuple(frame._replace(file=public_name(frame.file)) for frame in thread.frames))


# py-spy


async def _ask_py_spy(pid: int, *, with_locals: bool) -> list[ThreadStack]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    program = shutil.which("py-spy", path=path)
    if program is None:
        raise RelayDebugError("py-spy is not installed")
    # Nonblocking: py-spy would otherwise stop the process, which would stay stopped if py-spy were killed.
    options = ["--nonblocking", "--json", *(["--locals"] if with_locals else [])]
    try:
        status, out, err = await output_of(program, "dump", "--pid", str(pid), *options, within=PY_SPY_TIMEOUT)
    except TIMEOUT_ERRORS:
        raise RelayDebugError(f"py-spy did not answer within {PY_SPY_TIMEOUT:g} s") from None
    if status != 0:
        lines = err.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise RelayDebugError(f"py-spy: {lines[-1].strip()}")
    return _in_order([_from_py_spy(thread, pid) for thread in json.loads(out)])


def _from_py_spy(thread: Mapping[str, Any], pid: int) -> ThreadStack:
    """Read one element of the output of `py-spy dump --json`."""
    main, ident = thread["os_thread_id"] == pid, int(thread["thread_id"])
    frames = tuple(
        Frame(
            frame["filename"],
            frame["line"],
            frame["name"].rpartition(".")[2],  # py-spy prepends the class of `self`
            {one["name"]: one["repr"] or "" for one in frame["locals"] or []},
        )
        for frame in reversed(thread["frames"])
    )
    return ThreadStack(thread["thread_name"] or _name(ident, main), ident, main, frames)

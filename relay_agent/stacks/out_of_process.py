"""Asks a process what its threads are doing, in the ways that are left when it hangs.

    rung            answers while the process is                          needs
    helper thread   in Python, or in C code that has released the GIL     a registered process
    faulthandler    in C code that holds the GIL                          the signal of `relay_agent.stacks.in_process`
    py-spy          stuck without having registered a signal              py-spy installed, ptrace allowed

The signal goes only to a process that certainly still takes it for this: to any other program it would be the end.
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
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypedDict

from relay_agent.stacks.in_process import is_helper
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import RelayDebugError

__all__ = ["Dump", "parse_dump", "stacks_of"]

DUMP_TIMEOUT = 2.0
"""Seconds for the signal: faulthandler needs a millisecond once a thread of the process is scheduled."""
PY_SPY_TIMEOUT = 5.0
"""Seconds; it reads the symbols of the interpreter, which may lie on a slow disk."""
POLL_INTERVAL = 0.01
MAX_DUMP = 4 * 1024 * 1024
"""Bytes that are read of a dump; a hundred threads of a hundred frames need a quarter."""

_STATES = {
    "T": "it is stopped by a signal; 'kill -CONT' lets it go on",
    "D": "it waits in the kernel for a device or a file system",
    "Z": "it has ended",
}
_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-fA-F]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')


@dataclass(frozen=True)
class Dump:
    """How a process can be asked by signal; one object for as long as it is registered.

    Args:
        path: The file that it gave to `register_dump`.
        signal: What `register_dump` returned.
    """

    path: Path
    signal: int
    asking: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False, repr=False)
    """Two dumps at a time would be one."""


async def stacks_of(
    pid: int,
    ask: Callable[[], Awaitable[list[ThreadStack]]],
    dump: Dump | None,
    budget: float = 1.0,
    *,
    locals: bool = False,  # noqa: A002 - so it is called on the wire and on the command line
) -> ProcessStacks:
    """Return what the threads of a process are doing, by the first rung that answers.

    Args:
        pid: The process, of this user and on this machine.
        ask: Asks its helper thread for `relay_agent.stacks.in_process.collect`; cancelled when its time is over.
        dump: How to ask by signal, or None if the process has registered none.
        budget: Seconds for the helper thread.
        locals: Also ask py-spy for variables; `ask` decides about its own answer, and faulthandler has none.

    Returns:
        The stacks; its port and rank are for the caller to fill in.
    """
    rungs: dict[str, Callable[[], Awaitable[list[ThreadStack]]]] = {
        "helper thread": partial(_ask_helper, ask, budget),
        "faulthandler": partial(_ask_by_signal, pid, dump),
        "py-spy": partial(_ask_py_spy, pid, with_locals=locals),
    }
    reasons = []
    for how, rung in rungs.items():
        try:
            return ProcessStacks(pid=pid, how=how, threads=tuple(await rung()))
        except RelayDebugError as error:
            reasons.append(error.sentence)
        except (OSError, ValueError, KeyError, TypeError) as error:  # a file or an answer that is not as it should be
            reasons.append(f"{how}: {type(error).__name__}: {error}")
    state = _STATES.get(_status(pid).get("State", "Z")[:1])
    return ProcessStacks(pid=pid, error=state or "; ".join(reasons))


async def _ask_helper(ask: Callable[[], Awaitable[list[ThreadStack]]], budget: float) -> list[ThreadStack]:
    try:
        async with timeout(budget):
            return await ask()
    except TIMEOUT_ERRORS:
        raise RelayDebugError(f"its helper thread did not answer within {budget:g} s") from None


# The signal


async def _ask_by_signal(pid: int, dump: Dump | None) -> list[ThreadStack]:
    if dump is None:
        raise RelayDebugError("it has registered no signal")
    async with dump.asking:
        with _process(pid) as kill:
            header, main = _check(pid, dump)
            os.truncate(dump.path, header)  # what came too late for an earlier request
            open_to_it = {thread for thread, blocks in _threads(pid, dump.signal) if not blocks}
            kill(dump.signal)
            text = await _read_dump(pid, dump, header, open_to_it)
            os.truncate(dump.path, header)
    return parse_dump(text, main)


@contextlib.contextmanager
def _process(pid: int) -> Iterator[Callable[[int], None]]:
    """Yield what sends a signal to this process, and to no other that gets its number later."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise RelayDebugError("it has ended") from None
    except (OSError, AttributeError):  # a kernel before 5.3, a sandbox, or not Linux
        yield lambda number: os.kill(pid, number)
        return
    try:
        yield lambda number: signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def _check(pid: int, dump: Dump) -> tuple[int, int]:
    """Make sure that the process takes the signal for ours; return the header's length and the main thread.

    It must catch the signal, and must still have the file open, which exec closes.
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
        raise RelayDebugError("it does not take the signal any more: it is another program now, or about to end")
    return len(line), int(header["main"])


async def _read_dump(pid: int, dump: Dump, header: int, open_to_it: set[str]) -> str:
    """Wait for the dump to be complete: written, and no thread of the process still in the signal's handler.

    A handler runs with its own signal blocked, which /proc shows.
    """
    try:
        async with timeout(DUMP_TIMEOUT):
            while True:
                written = dump.path.stat().st_size > header
                if written and not any(blocks for thread, blocks in _threads(pid, dump.signal) if thread in open_to_it):
                    break
                await asyncio.sleep(POLL_INTERVAL)
    except TIMEOUT_ERRORS:
        raise RelayDebugError(f"it did not react to a signal within {DUMP_TIMEOUT:g} s") from None
    with dump.path.open("rb") as file:
        file.seek(header)
        return file.read(MAX_DUMP).decode(errors="replace")


def _threads(pid: int, number: int) -> Iterator[tuple[str, bool]]:
    """Yield the ids of the threads, and whether each has a signal blocked."""
    with contextlib.suppress(OSError):  # it ends now
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
    """Read what faulthandler has written; what does not look like it is passed over.

    Args:
        text: The newest thread comes first, and in each the innermost frame.
        main: The main thread's ident; 0 if it is not known.

    Returns:
        The threads as `relay_agent.stacks.in_process.collect` describes them, without variables; few have a name.
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
    """Return the threads that are the job's, the main thread first."""
    jobs = [thread for thread in threads if thread.main or not is_helper([frame.file for frame in thread.frames])]
    return sorted(jobs, key=lambda thread: not thread.main)


# py-spy


async def _ask_py_spy(pid: int, *, with_locals: bool) -> list[ThreadStack]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    program = shutil.which("py-spy", path=path)
    if program is None:
        raise RelayDebugError("py-spy is not installed")
    # It reads the memory of the running process: stopping it, if py-spy were then killed, could stop it for ever.
    options = ["--nonblocking", "--json", *(["--locals"] if with_locals else [])]
    process = await asyncio.create_subprocess_exec(
        *(program, "dump", "--pid", str(pid), *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with timeout(PY_SPY_TIMEOUT):
            out, err = await process.communicate()
    except TIMEOUT_ERRORS:
        raise RelayDebugError(f"py-spy did not answer within {PY_SPY_TIMEOUT:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        said = err.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise RelayDebugError(f"py-spy: {said[-1].strip()}")
    return _in_order([_from_py_spy(thread, pid) for thread in json.loads(out)])


class _PySpyVariable(TypedDict):
    name: str
    repr: str | None


class _PySpyFrame(TypedDict):
    filename: str
    line: int
    name: str
    locals: list[_PySpyVariable] | None


class _PySpyThread(TypedDict):
    """One element of what `py-spy dump --json` prints."""

    os_thread_id: int
    thread_id: int
    thread_name: str | None
    frames: list[_PySpyFrame]


def _from_py_spy(thread: _PySpyThread, pid: int) -> ThreadStack:
    main, ident = thread["os_thread_id"] == pid, int(thread["thread_id"])
    frames = tuple(
        Frame(
            frame["filename"],
            frame["line"],
            frame["name"].rpartition(".")[2],  # py-spy puts the class of `self` in front
            {one["name"]: one["repr"] or "" for one in frame["locals"] or []},
        )
        for frame in reversed(thread["frames"])
    )
    return ThreadStack(thread["thread_name"] or _name(ident, main), ident, main, frames)

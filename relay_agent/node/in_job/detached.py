"""Starting a program that is not a child of this process.

A job may wait for any child (`os.wait`) and look the process id up among its own workers, or handle SIGCHLD. It must
meet neither the agent nor debugpy's adapter. So the program is started by a process in between, which exits at once:

    job ----clone, exit signal 0----> process in between ----posix_spawn----> program
    job <---waitpid(__WALL)---------- exits; the init process (or a subreaper) becomes the program's parent

The kernel shows a child that was created without an exit signal only to those who wait with `__WALL` (wait(2)), and
its end causes no SIGCHLD. By `execve`, it would turn into an ordinary child. So the process in between executes no
program.

That process shares the memory of the job, whose calling thread sleeps meanwhile (CLONE_VFORK): nothing is copied,
however large the job is, and locks of the C library stay consistent. It runs no Python code, only two functions of the
C library, which are prepared as contexts (makecontext(3)) on stacks of their own: `posix_spawn`, and then `_exit`. All
signals are blocked in it, because the job's handlers would run in the shared memory.

The same result by `fork` would copy the page tables of the job, during which other threads cannot allocate memory, and
run Python in a process whose locks other threads may have held.

A job may be a subreaper (prctl(2)): it would become the program's parent, and meet it. So it is none for the few
milliseconds until the process in between has exited. For process 1 there is no such way.

Where this is not possible (other systems and processors, musl, a sandbox), the caller starts an ordinary child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from relay_agent.job.gevent_originals import time
from relay_agent.job.own_descriptor import OwnDescriptor, above_streams

FIRST_NUMBER = 3
"""Number of the first descriptor that a program receives; the others follow."""
_PROCESSORS = ("x86_64", "aarch64")
"""Where the layout of a context is known, and its functions take arguments of 64 bits."""
_VM, _VFORK, _WALL = 0x100, 0x4000, 0x40000000
"""CLONE_VM and CLONE_VFORK (clone(2)), __WALL (wait(2))."""
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37
"""PR_SET_CHILD_SUBREAPER and PR_GET_CHILD_SUBREAPER (prctl(2))."""
_SPAWN_FLAGS = 0x80 | 0x08
"""POSIX_SPAWN_SETSID and POSIX_SPAWN_SETSIGMASK (spawn.h); the mask in new attributes is empty."""
_STACK = 64 * 1024
_OBJECT = 16 * 1024
"""Bytes that hold any object of the C library below; the largest is a context of aarch64 with 4,560."""
_LINK = 8
"""Offset of uc_link in a context, before the three fields of uc_stack: address, flags and size (ucontext.h)."""
_CHUNK = 65536
_POLL_INTERVAL = 0.005


def start_detached(command: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int]) -> bool:
    """Start a program in a session of its own, with no signals blocked; return False if that is not possible here.

    Args:
        command: The path of the program, and its arguments.
        environ: Its environment.
        descriptors: What it receives, from `FIRST_NUMBER` on; of the others, it keeps only stderr.
    """
    if sys.platform != "linux" or os.uname().machine not in _PROCESSORS:
        return False
    try:
        import ctypes  # noqa: PLC0415 - only where an agent or a debugger is started

        return _spawn(ctypes, ctypes.CDLL(None), command, environ, descriptors)
    except (AttributeError, ImportError, OSError):  # musl has no contexts
        return False


def _spawn(ct: Any, library: Any, command: Sequence[str], environ: Mapping[str, str], received: Sequence[int]) -> bool:
    """Start the program by a process in between, and return whether it has been started."""
    pid, is_subreaper, path = ct.c_int(0), ct.c_int(0), ct.c_char_p(os.fsencode(command[0]))
    attributes, actions, first, last = (ct.create_string_buffer(_OBJECT) for _ in range(4))
    stacks = [ct.create_string_buffer(_STACK) for _ in range(3)]
    variables = _strings(ct, [f"{name}={value}" for name, value in environ.items()])
    spawn = (ct.byref(pid), path, actions, attributes, _strings(ct, command), variables)
    library.posix_spawnattr_init(attributes)
    library.posix_spawnattr_setflags(attributes, ct.c_short(_SPAWN_FLAGS))
    library.posix_spawn_file_actions_init(actions)
    _prepare_descriptors(library, actions, received)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    library.prctl(_GET_SUBREAPER, ct.byref(is_subreaper), 0, 0, 0)
    try:
        for context, stack, following in ((last, stacks[0], 0), (first, stacks[1], ct.addressof(last))):
            library.getcontext(context)
            struct.pack_into("=4Q", context, _LINK, following, ct.addressof(stack), 0, _STACK)
        library.makecontext(last, library["_exit"], 1, 0)
        library.makecontext(first, library.posix_spawn, len(spawn), *spawn)
        top = ct.c_void_p(ct.addressof(stacks[2]) + _STACK)
        if is_subreaper:
            library.prctl(_SET_SUBREAPER, 0, 0, 0, 0)
        between = library.clone(library.setcontext, top, _VM | _VFORK, first)
        if between > 0:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(between, _WALL)
    finally:
        if is_subreaper:
            library.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        library.posix_spawn_file_actions_destroy(actions)
    return bool(pid.value)


def _strings(ct: Any, texts: Sequence[str]) -> Any:
    """Return an array of strings as `execve` takes it; it refers to the strings."""
    return (ct.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)


def _prepare_descriptors(library: Any, actions: Any, received: Sequence[int]) -> None:
    """Let the program have the null device as stdin and stdout, stderr if it is open, and what it receives."""
    end = FIRST_NUMBER + len(received)
    free = max((*received, end)) + 1
    copies = range(free, free + len(received))
    for number, copy in zip(received, copies, strict=True):  # first moved away, so that none is overwritten
        library.posix_spawn_file_actions_adddup2(actions, number, copy)
    library.posix_spawn_file_actions_addopen(actions, 0, os.fsencode(os.devnull), os.O_RDWR, 0)
    library.posix_spawn_file_actions_adddup2(actions, 0, 1)
    if 2 in received or not _is_open(2):  # a file that the program opens must not become its stderr
        library.posix_spawn_file_actions_adddup2(actions, 0, 2)
    for copy, number in zip(copies, range(FIRST_NUMBER, end), strict=True):
        library.posix_spawn_file_actions_adddup2(actions, copy, number)
    if hasattr(library, "posix_spawn_file_actions_addclosefrom_np"):  # glibc 2.34
        library.posix_spawn_file_actions_addclosefrom_np(actions, end)
        return
    for number in {*copies, *map(int, os.listdir("/proc/self/fd"))}:  # noqa: PTH208 - numbers, not paths
        if number >= end:
            library.posix_spawn_file_actions_addclose(actions, number)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


class Report:
    """A pipe through which a started program reports once with a line; `with` closes it."""

    def __init__(self) -> None:
        self._reading, self.writing = map(above_streams, os.pipe())
        os.set_blocking(self._reading, False)
        self._own = [OwnDescriptor(self._reading), OwnDescriptor(self.writing)]

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        for descriptor in self._own:
            descriptor.close()

    def read(self, within: float) -> bytes:
        """Return the line; nothing can be started any more.

        Args:
            within: Time limit in seconds.

        Raises:
            EOFError: the program has exited.
            TimeoutError: the line was not complete in time, or the job has closed the pipe and uses its number.
        """
        self._own.pop().close()  # otherwise the pipe would not end with the program
        received, deadline = b"", time.monotonic() + within
        while time.monotonic() < deadline and self._own[0].is_own:
            try:
                chunk = os.read(self._reading, _CHUNK)
            except BlockingIOError:
                time.sleep(_POLL_INTERVAL)
                continue
            received += chunk
            if received.endswith(b"\n"):
                return received
            if not chunk:
                raise EOFError
        raise TimeoutError

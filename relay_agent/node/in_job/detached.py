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

Where this is not possible (other systems and processors, musl, a sandbox), the caller starts an ordinary child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from relay_agent.gevent_originals import time
from relay_agent.own_descriptor import OwnDescriptor, above_streams

__all__ = ["FIRST_NUMBER", "Report", "start_detached"]

FIRST_NUMBER = 3
"""Number of the first descriptor that a program receives; the others follow."""
_PROCESSORS = ("x86_64", "aarch64")
"""Where the layout of a context is known, and its functions take arguments of 64 bits."""
_VM, _VFORK, _WALL = 0x100, 0x4000, 0x40000000
"""CLONE_VM and CLONE_VFORK (clone(2)), __WALL (wait(2))."""
_SPAWN_FLAGS = 0x80 | 0x08
"""POSIX_SPAWN_SETSID and POSIX_SPAWN_SETSIGMASK (spawn.h); the mask in new attributes is empty."""
_STACK = 64 * 1024
_OBJECT = 16 * 1024
"""Bytes that hold any object of the C library below; the largest is a context of aarch64 with 4,560."""
_LINK, _STACK_POINTER, _STACK_SIZE = 8, 16, 32
"""Offsets of uc_link, uc_stack.ss_sp and uc_stack.ss_size in a context (ucontext.h)."""
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
        import fcntl  # noqa: PLC0415 - not on Windows

        library = ctypes.CDLL(None)
        library.setcontext, library.posix_spawn_file_actions_addclose  # noqa: B018 - musl has no contexts
    except (AttributeError, ImportError, OSError):
        return False
    last = FIRST_NUMBER + len(descriptors)
    copies: list[int] = []
    try:
        for number in descriptors:
            copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, last)  # not one of the final numbers
            copies.append(copy)
        return _spawn(ctypes, library, command, environ, copies)
    except OSError:
        return False
    finally:
        for number in copies:
            os.close(number)


def _spawn(ct: Any, library: Any, command: Sequence[str], environ: Mapping[str, str], received: list[int]) -> bool:
    """Start the program by a process in between, and return whether it has been started."""
    pid, path = ct.c_int(0), os.fsencode(command[0])
    attributes, actions, first, last = (ct.create_string_buffer(_OBJECT) for _ in range(4))
    arguments = _strings(ct, command)
    variables = _strings(ct, [f"{name}={value}" for name, value in environ.items()])
    library.posix_spawnattr_init(attributes)
    library.posix_spawnattr_setflags(attributes, ct.c_short(_SPAWN_FLAGS))
    library.posix_spawn_file_actions_init(actions)
    _prepare_descriptors(library, actions, received)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        spawn = (ct.byref(pid), ct.c_char_p(path), actions, attributes, arguments, variables)
        stacks = [
            _prepare_context(ct, library, last, None, library["_exit"], 0),
            _prepare_context(ct, library, first, last, library.posix_spawn, *spawn),
            ct.create_string_buffer(_STACK),
        ]
        top = ct.c_void_p(ct.addressof(stacks[-1]) + _STACK)
        between = library.clone(library.setcontext, top, _VM | _VFORK, first)
        if between > 0:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(between, _WALL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        library.posix_spawn_file_actions_destroy(actions)
    return bool(pid.value)


def _strings(ct: Any, texts: Sequence[str]) -> Any:
    """Return an array of strings as `execve` takes it; it refers to the strings."""
    return (ct.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)


def _prepare_context(ct: Any, library: Any, context: Any, following: Any, function: Any, *arguments: object) -> Any:
    """Let a context call a function, and continue with another context; return the stack, which must be kept."""
    stack = ct.create_string_buffer(_STACK)
    library.getcontext(context)
    for offset, value in (
        (_LINK, ct.addressof(following) if following else 0),
        (_STACK_POINTER, ct.addressof(stack)),
        (_STACK_SIZE, _STACK),
    ):
        ct.c_size_t.from_buffer(context, offset).value = value
    library.makecontext(context, function, len(arguments), *arguments)
    return stack


def _prepare_descriptors(library: Any, actions: Any, received: list[int]) -> None:
    """Let the program have the null device as stdin and stdout, stderr if it is open, and what it receives."""
    library.posix_spawn_file_actions_addopen(actions, 0, os.fsencode(os.devnull), os.O_RDWR, 0)
    library.posix_spawn_file_actions_adddup2(actions, 0, 1)
    try:
        os.fstat(2)
    except OSError:  # a file that the program opens must not become its stderr
        library.posix_spawn_file_actions_adddup2(actions, 0, 2)
    for number, copy in enumerate(received, FIRST_NUMBER):
        library.posix_spawn_file_actions_adddup2(actions, copy, number)
    end = FIRST_NUMBER + len(received)
    if hasattr(library, "posix_spawn_file_actions_addclosefrom_np"):  # glibc 2.34
        library.posix_spawn_file_actions_addclosefrom_np(actions, end)
        return
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - numbers, not paths
        if number >= end:
            library.posix_spawn_file_actions_addclose(actions, number)


class Report:
    """A pipe through which a started program reports once with a line; `with` closes it."""

    def __init__(self) -> None:
        self._reading, self.writing = map(above_streams, os.pipe())
        self._own = [OwnDescriptor(self._reading), OwnDescriptor(self.writing)]

    def __repr__(self) -> str:
        return f"<Report {self._own}>"

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
            TimeoutError: the line was not complete in time.
        """
        self._own.pop().close()  # otherwise the pipe would not end with the program
        os.set_blocking(self._reading, False)
        received, deadline = b"", time.monotonic() + within
        while time.monotonic() < deadline:
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

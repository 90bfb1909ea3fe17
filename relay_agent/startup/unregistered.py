"""Logs why a Python program of a `relay-agent run` job cannot register, which the program itself does not notice.

`relay-agent run` replaces itself with the job's command. If a script then overwrites PYTHONPATH or cleans the
environment, no code of relay-debug runs in the job. So `run` first starts a process that looks at the job's Python
processes until one of them can register, or until the job ends. Linux only: /proc contains what it looks at.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from relay_agent.debuggee.unreached.children import children_by_parent
from relay_agent.inject._relay_debug_programs import NO_FILE, is_python, isolating_option, what_runs
from relay_agent.job.stderr import write_line
from relay_agent.settings.environment import MODE, REGISTERED, WAIT
from relay_agent.startup.eligibility import should_register

LOOK_INTERVAL = 5.0
"""Seconds between two looks. A program is reported if both show it, so one that ends quickly is not."""
TITLE = b"relay-agent run"
"""The command line of the watching process."""
MIN_VERSION = (3, 10)
_CALL = "make the code call start_remote_debugging_from_args()"
_SYSTEM = ("/usr/bin/", "/usr/sbin/", "/usr/lib/")
"""Directories of Python programs that belong to the distribution, which isolates many of them."""
_NO_FILE = {"code": "code given with -c", "stdin": "a program from stdin"}
"""The kinds of programs in which no breakpoint can be set."""
_HOOK = "sitecustomize.py"


class PythonProcess(NamedTuple):
    """A running Python process, and the environment with which it was started."""

    pid: int
    executable: str
    orig_argv: list[str]
    environ: dict[str, str]


def watch_this_process() -> None:
    """Start a process that logs why the program which replaces this one does not register; it ends with the program.

    Like the agent, it has its own session, and its parent is the init process (or a subreaper).
    """
    job = os.getpid()
    if not (sys.platform == "linux" and hasattr(os, "pidfd_open")):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 and later warn if a package has started a thread at start-up
        with contextlib.suppress(OSError):  # the limit of processes is reached
            if starter := os.fork():
                os.waitpid(starter, 0)
            else:
                _start_watcher(job)


def _start_watcher(job: int) -> None:
    """Fork again, watch the job in that child, and exit in both.

    The parent waits for the exit of this process, so that its pid is not reused, and the descriptors are closed before
    the job begins.
    """
    try:
        ended = os.pidfd_open(job)
        os.setsid()
        _release_descriptors({2, ended})
        _replace_command_line()
        if not os.fork():
            _watch(job, ended)
    finally:
        os._exit(0)


def _release_descriptors(kept: set[int]) -> None:
    """Close all other descriptors, and leave the directory: another program may wait until nobody uses them."""
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - numbers, not paths
        if number not in kept:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(number)
    os.chdir("/")


def _replace_command_line() -> None:
    """Show another command line than the job's: a job may look for a second process of its own, and a key may be in it.

    It is kept in the memory of the process (proc_pid_stat(5), fields 48 and 49).
    """
    with contextlib.suppress(OSError):  # a hardened kernel does not allow it
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(TITLE.ljust(end - start, b"\0")[: end - start])


def _watch(job: int, ended: int) -> None:
    before: dict[int, list[str]] = {}
    while not select.select([ended], [], [], LOOK_INTERVAL)[0]:
        found = [process for process in python_processes(job) if _is_program(process)]
        for process in found:
            if before.get(process.pid) == process.orig_argv:
                if not _has_registered(process.pid) and (reason := obstacle(process)):
                    write_line(f"pid {process.pid}, {_name(process)}, of this run cannot be debugged: {reason}")
                return
        before = {process.pid: process.orig_argv for process in found}


def _is_program(process: PythonProcess) -> bool:
    """Whether the process would register if it had a file and the settings of the run, and does not do so itself."""
    environ = {MODE: WAIT, **process.environ}
    registers_itself = any(argument.startswith("--is-debug") for argument in process.orig_argv)
    is_system_tool = what_runs(process.orig_argv)[1].startswith(_SYSTEM)
    reason = should_register(environ, process.orig_argv, process.pid)
    is_own = reason is None or (reason == NO_FILE and REGISTERED not in environ)
    return is_own and not (registers_itself or is_system_tool)


def _name(process: PythonProcess) -> str:
    kind, name = what_runs(process.orig_argv)
    return "python" if kind in _NO_FILE else Path(name).name


def _has_registered(pid: int) -> bool:
    """Return whether a process has the file into which it writes its stacks for the agent open."""
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(path.readlink()).removesuffix(" (deleted)").endswith(f"-{pid}.stacks"):
                    return True
    return False


def command_obstacle(orig_argv: list[str]) -> str:
    """Return why the command line of a Python process keeps it from registering, with a hint; "" if it does not."""
    if what := _NO_FILE.get(what_runs(orig_argv)[0]):
        return f"{what} is not debugged. hint: put the code in a file, or {_CALL}"
    if letter := isolating_option(orig_argv):
        return f"python -{letter} ignores the settings of the run. hint: leave out -{letter}, or {_CALL}"
    return ""


def obstacle(process: PythonProcess) -> str:
    """Return why a Python process cannot register, with a hint; "" if nothing prevents it."""
    if reason := command_obstacle(process.orig_argv):
        return reason
    version = tuple(map(int, re.findall(r"[0-9]+", Path(process.executable).name)))
    if len(version) > 1 and version < MIN_VERSION:
        return f"it runs Python {version[0]}.{version[1]}. hint: use Python 3.10 or later"
    if MODE not in process.environ:
        return (
            "it was started without the environment of the run, as 'env -i' and 'sudo' do. hint: pass on PYTHONPATH "
            f"and the variables that start with RELAY_, or {_CALL}"
        )
    return _python_path_obstacle(process.environ)


def _python_path_obstacle(environ: Mapping[str, str]) -> str:
    for entry in environ.get("PYTHONPATH", "").split(os.pathsep):
        if Path(entry, "_relay_debug_programs.py").exists():  # maybe of another installation
            return ""
        if os.path.isabs(entry) and Path(entry, _HOOK).exists():  # noqa: PTH117 - its directory is unknown
            return (
                f"PYTHONPATH was changed, so {Path(entry, _HOOK)} is imported in place of that of relay-debug. hint: "
                f"put new entries behind those of PYTHONPATH, or {_CALL}"
            )
    return (
        "PYTHONPATH was replaced after 'relay-agent run' had set it. hint: keep its value, as in "
        f"export PYTHONPATH=src:$PYTHONPATH, or {_CALL}"
    )


def python_processes(job: int) -> Iterator[PythonProcess]:
    """Yield the Python processes of a job, of which the first process is given.

    Those of other users are omitted, and those that show a title (setproctitle): it overwrites command line and
    environment, and then only zero bytes follow.
    """
    remaining, children = [job], children_by_parent()
    while remaining:
        pid = remaining.pop()
        remaining += children.get(pid, ())
        try:
            executable = str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)")
            orig_argv = _strings(pid, "cmdline")
            environ = dict(text.partition("=")[::2] for text in _strings(pid, "environ"))
        except OSError:  # it has exited, or belongs to another user
            continue
        is_title = len(orig_argv) > 1 and not any(orig_argv[1:])
        if is_python(executable) and orig_argv and not is_title:
            yield PythonProcess(pid, executable, orig_argv, environ)


def _strings(pid: int, name: str) -> list[str]:
    """Return the strings in a file of a process that are separated by zero bytes; the last one ends with one, too."""
    return os.fsdecode(Path(f"/proc/{pid}/{name}").read_bytes()).split("\0")[:-1]

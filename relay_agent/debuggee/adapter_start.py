"""Starts debugpy's adapter without the secrets of the job, and reads its ports from a pipe that only it can write to.

`debugpy.listen` opens a port on 127.0.0.1 to which its adapter reports its ports. `debugpy.listen` trusts the first
program that connects to this port. Every user of the machine can read the port number in the adapter's command line,
and once the connection is closed, the kernel no longer shows who connected. If an environment variable names a file,
the adapter writes the same report into it. So the file is a pipe that the adapter inherits, and `debugpy.listen`
accepts a connection with the content of that pipe, whatever arrives at the port. If the adapter fails, the pipe ends.

`debugpy.listen` starts the adapter as a child process, which a job that waits for any child would meet.

Only `accept` and `Popen` of the standard library are replaced, in one thread, so a change in debugpy cannot reopen
the port.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relay_agent.job.gevent_originals import socket, threading
from relay_agent.node.directory import STARTER_VARIABLE
from relay_agent.node.in_job.detached import FIRST_NUMBER, Report, start_detached
from relay_agent.node.in_job.own_python import without_python_options

FILE_VARIABLE = "DEBUGPY_ADAPTER_ENDPOINTS"
"""debugpy's variable for the path."""
DESCRIPTORS = "/dev/fd"
"""The directory in which the descriptors of a process are files; it may be missing, as in a container without /proc."""
TIMEOUT = 30.0
"""Timeout in seconds if the listener has none; debugpy uses the same value."""
ADAPTER_GUARD = Path(__file__).with_name("adapter_guard")
"""The directory of the `sitecustomize` that restricts the adapter's ports to this user."""
_EXCLUDED_PREFIXES = ("RELAY_", "AZRELAY_", FILE_VARIABLE)
"""Prefixes of variables that debugpy's adapter must not inherit: secrets, and the report file of another debuggee."""


@contextlib.contextmanager
def own_adapter() -> Iterator[None]:
    """Inside the block, `Popen` in this thread starts an adapter, and `accept` returns its report."""
    module: Any = importlib.import_module("subprocess")  # that of the job, as debugpy imports it
    accept, begin, thread = socket.socket.accept, module.Popen.__init__, threading.get_ident()
    has_files = Path(DESCRIPTORS).is_dir()

    def accept_report(listener: socket.socket) -> tuple[socket.socket, Any]:
        if threading.get_ident() != thread or not has_files:
            return accept(listener)
        try:
            line = report.read(listener.gettimeout() or TIMEOUT)
        except EOFError:
            raise RuntimeError("debugpy's adapter failed at its start; see the lines above") from None
        here, there = socket.socketpair()
        with there:
            there.sendall(line)
        return here, ("", 0)

    def start(self: Any, *arguments: Any, **options: Any) -> None:
        if threading.get_ident() != thread:
            begin(self, *arguments, **options)
        elif start_detached(arguments[0], environ(options["env"], FIRST_NUMBER), (report.writing,)):
            self.args, self.returncode = arguments[0], 0
        else:
            options |= {"env": environ(options["env"], report.writing), "pass_fds": (report.writing,)}
            begin(self, *arguments, **options)

    def environ(given: dict[str, str], number: int) -> dict[str, str]:
        file = {FILE_VARIABLE: f"{DESCRIPTORS}/{number}"} if has_files else {}
        return {**given, **file, STARTER_VARIABLE: str(os.getpid())}

    with (
        Report() as report,
        replaced(socket.socket, "accept", accept_report),
        replaced(module.Popen, "__init__", start),
    ):
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, replacement: object) -> Iterator[None]:
    """Give an attribute of a module or a class another value inside the block."""
    before = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, before)


def adapter_environment() -> dict[str, str]:
    """Return the environment variables that debugpy's adapter inherits."""
    kept = {name: value for name, value in without_python_options().items() if not name.startswith(_EXCLUDED_PREFIXES)}
    return {**kept, "PYTHONPATH": str(ADAPTER_GUARD)}

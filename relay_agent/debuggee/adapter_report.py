"""Reads the ports of debugpy's adapter from a file that only this user can write.

`debugpy.listen` opens a port on 127.0.0.1 to which its adapter reports its ports. `debugpy.listen` trusts the first
program that connects to this port. Every user of the machine can read the port number in the adapter's command line,
and once the connection is closed, the kernel no longer shows who connected. If an environment variable names a file,
the adapter writes the same report into it. So this module makes `debugpy.listen` accept a connection with the content
of that file, and ignores everything that arrives at the port.

Only the standard library's `accept` is replaced, in one thread, so a change in debugpy cannot reopen the port.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from relay_agent.gevent_originals import socket, threading, time
from relay_agent.temporary_directory import temporary_directory

__all__ = ["FILE_VARIABLE", "report_through_file"]

FILE_VARIABLE = "DEBUGPY_ADAPTER_ENDPOINTS"
"""debugpy's variable for the path."""
TIMEOUT = 30.0
"""Timeout in seconds if the listener has none; debugpy uses the same value."""
POLL_INTERVAL = 0.005
"""Seconds between checks; the adapter takes 200 ms to start."""


@contextlib.contextmanager
def report_through_file() -> Iterator[str]:
    """Yield the path for the adapter's environment; inside the block, `accept` in this thread returns the report."""
    accept, thread = socket.socket.accept, threading.get_ident()
    with TemporaryDirectory(prefix="relay-debug-", dir=temporary_directory()) as directory:
        path = Path(directory) / "endpoints.json"

        def accept_report(listener: socket.socket) -> tuple[socket.socket, Any]:
            if threading.get_ident() != thread:
                return accept(listener)
            report = _read(path, listener.gettimeout() or TIMEOUT)
            here, there = socket.socketpair()
            with there:
                there.sendall(report)
            return here, ("", 0)

        socket.socket.accept = accept_report  # type: ignore[method-assign,assignment] # see above
        try:
            yield str(path)
        finally:
            socket.socket.accept = accept  # type: ignore[method-assign] # likewise


def _read(path: Path, within: float) -> bytes:
    """Return the content of a file as soon as it contains a complete line.

    Raises:
        TimeoutError: the file was not complete in time.
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            content = path.read_bytes()
            if content.endswith(b"\n"):
                return content
        time.sleep(POLL_INTERVAL)
    raise TimeoutError("debugpy's adapter has not reported its ports")

"""Patch that keeps pydevd from using the files of a job that closes descriptors which it has not opened.

After `os.closerange`, the next file that the job opens gets the number of pydevd's connection to debugpy's adapter.
pydevd would write messages to that file, and close it at the end of the session. With this patch, such a connection
counts as lost, which ends the session, and the number is left alone. A debugger can attach again.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import Any

from relay_agent.debuggee.pydevd_patches.child_wait import loaded_pydevds
from relay_agent.debugpy_internals.table import CLOSED_DESCRIPTORS
from relay_agent.node.in_job.connection import OwnDescriptor
from relay_agent.stderr import write_line

__all__ = ["LOST", "AdapterConnection", "install"]

LOST = "the debug session has ended, because the job has closed the debugger's descriptor; a debugger can attach again"


def install() -> None:
    """Patch `pydevd.start_client` in this process and its forked children, after all other patches of it."""
    if not CLOSED_DESCRIPTORS.is_available():
        return
    for each in loaded_pydevds():
        each.start_client = functools.partial(_start_client, each.start_client)


def _start_client(connect: Callable[[str, int], Any], host: str, port: int) -> Any:
    connected = connect(host, port)
    return AdapterConnection(connected, OwnDescriptor(connected.fileno()))


class AdapterConnection:
    """A socket whose functions raise an OSError once its descriptor belongs to the job.

    Args:
        connected: A connected socket; this object owns it.
        descriptor: The socket's descriptor.
    """

    def __init__(self, connected: Any, descriptor: OwnDescriptor) -> None:
        self._socket = connected
        self._descriptor = descriptor

    def __repr__(self) -> str:
        return f"<AdapterConnection {self._descriptor!r}>"

    def __getattr__(self, name: str) -> Any:
        """Return a function of the socket; callers look it up immediately before each call."""
        if self._has_just_been_lost():
            write_line(LOST)
        if self._socket.fileno() < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return getattr(self._socket, name)

    def close(self) -> None:
        """Close the socket; a descriptor that belongs to the job by now stays open."""
        self._has_just_been_lost()
        self._socket.close()

    def __del__(self) -> None:
        """Keep the socket object from closing the number of a file when it is collected."""
        self._has_just_been_lost()

    def _has_just_been_lost(self) -> bool:
        """Detach the socket from its number if that belongs to the job by now; return whether this call did so."""
        return self._socket.fileno() >= 0 and not self._descriptor.is_own and self._socket.detach() >= 0

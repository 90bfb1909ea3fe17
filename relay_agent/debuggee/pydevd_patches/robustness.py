"""Patches for jobs that close descriptors or remove their working directory, or whose debug adapter exits too early."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import Any

from relay_agent.debuggee.pydevd_patches.child_processes import loaded_pydevds
from relay_agent.debugpy_internals.table import EXITING
from relay_agent.job.own_descriptor import above_streams
from relay_agent.job.paths import current_directory, start_directory
from relay_agent.job.stderr import write_line
from relay_agent.node.in_job.connection import OwnSocket

# Patch that keeps pydevd from using the files of a job that closes descriptors which it has not opened.
#
# After `os.closerange`, the next file that the job opens gets the number of pydevd's connection to debugpy's adapter.
# pydevd would write messages to that file, and close it at the end of the session. With this patch, such a connection
# counts as lost, which ends the session, and the number is left alone. A debugger can attach again.

LOST = "the debug session has ended, because the job has closed the debugger's descriptor; a debugger can attach again"


def install_closed_descriptors() -> None:
    """Patch `pydevd.start_client` in this process and its forked children, after all other patches of it."""
    for each in loaded_pydevds():
        each.start_client = functools.partial(_start_client, each.start_client)


def _start_client(connect: Callable[[str, int], Any], host: str, port: int) -> Any:
    connected = connect(host, port)  # without a time limit from then on, as an `OwnSocket`
    return AdapterConnection(type(connected)(fileno=above_streams(connected.detach())))


class AdapterConnection(OwnSocket):
    """A connected socket whose functions raise an OSError once its descriptor belongs to the job."""

    def __getattr__(self, name: str) -> Any:
        """Return a function of the socket; callers look it up immediately before each call."""
        if self._has_just_been_lost():
            write_line(LOST)
        if self._socket.fileno() < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return getattr(self._socket, name)

    def __del__(self) -> None:
        """Keep the socket object from closing the number of a file when it is collected."""
        self._has_just_been_lost()

    def _has_just_been_lost(self) -> bool:
        """Detach the socket from its number if that belongs to the job by now; return whether this call did so."""
        return self._socket.fileno() >= 0 and not self.is_own and self._socket.detach() >= 0


# Patch that lets an editor attach to a process whose working directory was removed.
#
# pydevd reads the working directory at each `attach`, and for each file that code refers to by a relative path. If the
# directory does not exist any more, this raises an exception, which ends the session before it has begun, or the
# tracing of a thread. With this patch, pydevd's modules get the directory in which the process was started instead. The
# job is not affected, because only the names `os` and `os_path_real_path` in these modules refer to other objects.


class _Path:
    """The module `os.path`, with functions that do not need a working directory."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os.path, name)

    @staticmethod
    def abspath(path: str) -> str:
        try:
            return os.path.abspath(path)  # noqa: PTH100 - as pydevd does, here and below
        except FileNotFoundError:
            return os.path.normpath(os.path.join(_Os.getcwd(), path))  # noqa: PTH118

    @staticmethod
    def realpath(path: str) -> str:
        try:
            return os.path.realpath(path)
        except FileNotFoundError:  # not `abspath`, which removes "link/.."
            return os.path.realpath(os.path.join(_Os.getcwd(), path))  # noqa: PTH118


class _Os:
    """The module `os`, in the same way."""

    path = _Path()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def getcwd() -> str:
        return current_directory() or start_directory() or os.sep


def install_removed_directory() -> None:
    """Patch pydevd in this process and its forked children."""
    import pydevd_file_utils  # noqa: PLC0415 - in debug runs only, as the rest
    from _pydevd_bundle import pydevd_process_net_command_json  # noqa: PLC0415

    pydevd_process_net_command_json.os = _Os()
    pydevd_file_utils.os = _Os()
    pydevd_file_utils.os_path_real_path = _Path.realpath


# Patch that lets a process exit even if debugpy's adapter exited while pydevd was starting in the process.
#
# pydevd keeps a process alive until its writer thread has sent all messages. If the connection to the adapter breaks,
# the writer thread exits and leaves its last messages in the queue. A debugger that has already started is then shut
# down completely. However, a debugger that is still starting creates the thread that keeps the process alive
# (`CheckAliveThread`), and that thread waits without limit for the queue to become empty. With this patch, the queue of
# a writer thread that has ended counts as empty.


def install_exiting() -> None:
    """Patch `WriterThread.empty` in this process and its forked children."""
    from _pydevd_bundle.pydevd_comm import WriterThread  # noqa: PLC0415 - in debug runs only

    is_queue_empty = WriterThread.empty

    def is_empty_or_ended(writer: Any) -> bool:
        """Return whether nothing is left to send, or nothing can be sent any more."""
        if not EXITING.is_off:
            with EXITING.guarded():
                if writer.ident is not None and not writer.is_alive():
                    return True
        return bool(is_queue_empty(writer))

    WriterThread.empty = is_empty_or_ended

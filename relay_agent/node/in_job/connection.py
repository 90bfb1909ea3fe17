"""The helper thread's connection to the agent, and the signals that the thread leaves to the job."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from relay_agent.job.gevent_originals import socket
from relay_agent.job.own_descriptor import OwnDescriptor, above_streams
from relay_agent.stacks.in_process import dump_signals

# Leaves signals to the threads of the job.
#
# The kernel delivers a signal of a process to any thread that does not block it. A program that blocks a signal in all
# its threads and waits for it (`sigwait`, `signalfd`, `signal.sigtimedwait`) would be ended by the signal, because a
# thread of this package has not blocked it. So the helper thread starts with all signals blocked, and so do the threads
# that it starts, which include those of debugpy. The agent and debugpy's adapter inherit the mask and reset it.

_FAULTS = ("SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""Signals that the thread causes itself; while they are blocked, handlers such as faulthandler's are not called."""


@contextlib.contextmanager
def blocked_signals() -> Iterator[None]:
    """Block signals in this thread, and thus in the threads that are started in the block.

    The signals for dumps stay, so that stacks can be requested from a job that blocks all signals.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    kept = {getattr(signal, name) for name in _FAULTS if hasattr(signal, name)} | set(dump_signals())
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - kept)  # a signal handler may raise here
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


CHUNK = 256 * 1024
"""Bytes read at once; a file that is pushed is one message."""


def unix_socket() -> socket.socket:
    """Return a new socket, with a descriptor that is not the number of a standard stream."""
    return socket.socket(fileno=above_streams(socket.socket(socket.AF_UNIX).detach()))


class OwnSocket:
    """A socket that does not touch files of the job.

    Args:
        opened: The socket; this object owns it.
    """

    def __init__(self, opened: socket.socket) -> None:
        opened.settimeout(None)  # the job may have set `socket.setdefaulttimeout`
        self._socket = opened
        self._descriptor = OwnDescriptor(opened.fileno())

    @property
    def is_own(self) -> bool:
        """True if the descriptor still refers to the socket."""
        return self._socket.fileno() >= 0 and self._descriptor.is_own

    def close(self) -> None:
        """Close the socket; a descriptor that belongs to the job by now stays open."""
        if self._socket.detach() >= 0:  # otherwise the socket object would close the number when it is collected
            self._descriptor.close()


class AgentConnection(OwnSocket):
    """A connection to the agent; its socket is connected before the first call."""

    def is_open(self) -> bool:
        """Return whether the agent has not closed the connection."""
        try:
            return self.is_own and bool(self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def send(self, line: bytes) -> bool:
        """Send a message, and return whether that was possible."""
        try:
            if self.is_own:
                self._socket.sendall(line)
                return True
        except OSError:  # not `suppress`: a debugger that is about to stop the thread would stop in other code
            pass
        return False

    def lines(self) -> Iterator[bytes]:
        """Yield the agent's messages until the connection ends or is lost."""
        begun = b""
        while chunk := self._receive():
            *complete, begun = (begun + chunk).split(b"\n")
            yield from complete

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(CHUNK) if self.is_own else b""
        except OSError:
            return b""

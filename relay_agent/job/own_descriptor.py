"""Descriptors in the job that are used and closed only while they still belong to what was opened.

A program may close descriptors that it has not opened: `os.closerange`, or a library that turns it into a daemon. The
kernel then gives the same number to the next file that the program opens. Bytes that are sent to that number would get
into the program's file, and closing it would lose what the program writes. So the number is used only if it still
refers to what was opened; otherwise the connection counts as lost, and the number is left alone. A number
far above the usual ones would not help: `os.closerange` takes all of them.

A program may also be started with closed standard streams (`>&-`). Then the next descriptors would be 0 to 2, and
what C code or a child process prints would be sent to the agent. So `above_streams` moves what is opened here.

The check cannot be joined with the system call that follows it. A program that closes and opens files between the two
gets bytes of one message at most; a call that is already waiting keeps the socket.
"""

from __future__ import annotations

import os

STDERR = 2


class OwnDescriptor:
    """A descriptor that may by now belong to a file of the job.

    Args:
        number: An open descriptor.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._identity = _identity(number)

    @property
    def is_own(self) -> bool:
        """True if the descriptor still refers to what was opened."""
        try:
            return _identity(self.number) == self._identity
        except OSError:  # it is closed
            return False

    def close(self) -> None:
        """Close the descriptor, unless it belongs to the job by now."""
        if self.is_own:
            os.close(self.number)


def above_streams(number: int) -> int:
    """Move a descriptor that has just been opened to a number above those of the standard streams, and return it."""
    if number > STDERR:
        return number
    import fcntl  # noqa: PLC0415 - not available on Windows

    moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, STDERR + 1)
    os.close(number)
    return moved


def _identity(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino

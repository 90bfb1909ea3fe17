"""Locks on the local ports that this user's relay-clients use: one locked file for each port.

    /tmp/relay-client-1000/           0700, whatever RELAY_CLIENT_DIR is: the ports are those of the machine
        5678.lock                     locked (flock) by a relay-client while it uses port 5678

The lock distinguishes a port that another relay-client uses (an error) from a port on which an editor is listening (the
job connects to it). The kernel releases the lock when its process exits for any reason.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from relay_client.user_directory import make_private, shared_directory, user_directory

__all__ = ["PortLock", "PortLocked"]


class PortLocked(Exception):
    """Another relay-client of this user uses the port."""


class PortLock:
    """The lock of one port.

    Args:
        port: The local port.
        roots: Directories for the lock file, of which the first usable one counts; by default that of all relay-clients
            of this user, or else that of RELAY_CLIENT_DIR.

    Raises:
        PortLocked: another relay-client uses the port.
    """

    def __init__(self, port: int, *roots: Path) -> None:
        self.port = port
        self._descriptor: int | None = None
        for root in roots or (shared_directory(), user_directory()):
            self._path = root / f"{port}.lock"
            self._descriptor = _lock(self._path)
            if self._descriptor is not None:
                break

    def __repr__(self) -> str:
        return f"<PortLock {self.port} {'held' if self.is_held else 'unknown'}>"

    @property
    def is_held(self) -> bool:
        """True if this process holds the lock; False if locks are not available."""
        return self._descriptor is not None

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()  # still locked: a process that is waiting for this file creates a new one
            os.close(self._descriptor)
            self._descriptor = None
            with contextlib.suppress(OSError):  # the directory contains other locks
                self._path.parent.rmdir()


def _lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None if locks are not available.

    Raises:
        PortLocked: another process holds it.
    """
    try:
        import fcntl  # noqa: PLC0415 - does not exist on Windows
    except ImportError:
        return None
    while True:
        try:
            descriptor = _open(path)
        except FileNotFoundError:  # another process has just removed the directory
            continue
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise PortLocked from None
            return None
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the file
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open a lock file in a directory that only this user can enter.

    Raises:
        OSError: the directory or the file does not exist.
    """
    make_private(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

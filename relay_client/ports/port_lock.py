"""Locks on the local ports that this user's relay-clients use: one locked file for each port.

    /tmp/relay-client-1000/           0700, whatever RELAY_CLIENT_DIR is: the ports are those of the machine
        5678.lock                     locked (flock) by a relay-client while it uses port 5678

The lock distinguishes a port that another relay-client uses (an error) from a port on which an editor is listening (the
job connects to it). The kernel releases the lock when its process exits for any reason. The file names the process that
holds the lock: {"pid": 4711, "user": "alice", "since": 1770000000.0}. Without the lock, its content means nothing.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from relay_client.ui.text import clock, printable
from relay_client.user_directory import make_private, shared_directory, user_directory

__all__ = ["PortLock", "PortLocked", "PortOwner"]

MAX_OWNER = 4096
"""Maximum bytes of a lock file."""


@dataclass(frozen=True)
class PortOwner:
    """The relay-client that uses a port.

    >>> import time
    >>> str(PortOwner(4711, "alice", time.mktime((2026, 1, 5, 12, 3, 0, 0, 0, -1))))
    'pid 4711, user alice, since 12:03'
    """

    pid: int
    user: str
    since: float
    """Unix time."""

    def __str__(self) -> str:
        user = f"user {self.user}, " if self.user else ""
        return f"pid {self.pid}, {user}since {clock(self.since)}"

    @classmethod
    def this_process(cls) -> PortOwner:
        """Return the owner of a lock that this process takes now."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError, ImportError):  # a container's user without a name
            user = ""
        return cls(os.getpid(), user, time.time())

    @classmethod
    def decode(cls, text: bytes) -> PortOwner | None:
        """Return the owner that a lock file names; None if it names none, as while it is being written."""
        try:
            found = json.loads(text)
        except ValueError:
            return None
        match found:
            case {"pid": int(pid), "user": str(user), "since": float(since)}:
                return cls(pid, printable(user), since)
        return None

    def encode(self) -> bytes:
        """Return the content of the lock file."""
        return json.dumps(asdict(self)).encode("ascii")


class PortLocked(Exception):
    """Another relay-client of this user uses the port."""

    def __init__(self, owner: PortOwner | None = None) -> None:
        super().__init__(owner)
        self.owner = owner
        """None if the lock file does not name it."""


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
            owner = PortOwner.decode(os.pread(descriptor, MAX_OWNER, 0))
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise PortLocked(owner) from None
            return None
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the file
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                _write_owner(descriptor)
                return descriptor
        os.close(descriptor)


def _write_owner(descriptor: int) -> None:
    """Write to the lock file who holds it; a full disk leaves it empty."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)  # of a relay-client that was killed
        os.pwrite(descriptor, PortOwner.this_process().encode(), 0)


def _open(path: Path) -> int:
    """Open a lock file in a directory that only this user can enter.

    Raises:
        OSError: the directory or the file does not exist.
    """
    make_private(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

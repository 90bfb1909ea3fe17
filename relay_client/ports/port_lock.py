"""Which local ports this user's relay-clients have: a lock on a file for each.

    /tmp/relay-client-1000/           0700
        5678.lock                     held (flock) by a relay-client for as long as it has port 5678

It tells a port that another relay-client has, which is a mistake, from one that an editor listens on, which means that
the job is to dial the editor. Locks end with their process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["PortLock", "PortLocked"]


class PortLocked(Exception):
    """Another relay-client of this user has the port."""


class PortLock:
    """The lock of one port.

    Args:
        port: The local port.
        root: Where locks are; by default a directory of this user's own.

    Raises:
        PortLocked: another relay-client has the port.
    """

    def __init__(self, port: int, root: Path | None = None) -> None:
        self.port = port
        self._path = (root or _default_root()) / f"{port}.lock"
        self._descriptor = _lock(self._path)

    def __repr__(self) -> str:
        return f"<PortLock {self.port} {'held' if self.is_certain else 'unknown'}>"

    @property
    def is_certain(self) -> bool:
        """Whether no other relay-client of this user has the port; False where locks cannot be had."""
        return self._descriptor is not None

    def release(self) -> None:
        """Give it up."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()  # it is still held: whoever waits for this file makes a new one
            os.close(self._descriptor)
            self._descriptor = None
            with contextlib.suppress(OSError):  # others are in it
                self._path.parent.rmdir()


def _default_root() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"relay-client-{user}"


def _lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None where there are no such locks.

    Raises:
        PortLocked: another process holds it.
    """
    try:
        import fcntl  # noqa: PLC0415 - not there on Windows
    except ImportError:
        return None
    while True:
        try:
            descriptor = _open(path)
        except FileNotFoundError:  # the directory was removed just now by the last one in it
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
        with contextlib.suppress(FileNotFoundError):  # it was removed just now
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open a lock file in a directory that only this user can enter.

    Raises:
        OSError: that cannot be had.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.parent.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError("not a directory of this user's own")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

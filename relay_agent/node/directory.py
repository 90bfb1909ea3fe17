"""Where the processes of a node meet their agent: a lock, a socket and some files in a directory of this user's own.

    /tmp/relay-debug-1000/            0700; RELAY_NODE_DIR names another place
        4f1d0c9a2b7e.lock             held (flock) by the agent for as long as it lives
        4f1d0c9a2b7e.sock             where it is met

The name stands for what the agent listens to: processes with the same hybrid connection and the same credentials share
an agent. It is a digest, which reveals neither.

A lock that nobody holds means that no agent lives, whatever else lies around: that is from one that was killed, and
the next agent of this user that leaves takes it along. Whoever removes a lock file holds it, and whoever has just
locked one checks that it is still the file of that name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from relay_core.access_settings import ACCESS_VARIABLES
from relay_core.errors import ConfigurationError

__all__ = ["NODE_DIR_VARIABLE", "NodeDirectory"]

NODE_DIR_VARIABLE = "RELAY_NODE_DIR"
MAX_SOCKET_PATH = 103
"""Bytes; with the zero behind it, a Unix socket's address holds 108 on Linux and 104 on macOS."""
_OLD_CONFIG_FILE = ".azrelay.json"


class NodeDirectory:
    """The meeting place of one agent.

    Args:
        root: The directory; whoever takes the lock makes it, if it is missing.
        name: Of the agent in it.

    Raises:
        ConfigurationError: the path is too long.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        if len(os.fsencode(self.socket_path)) > MAX_SOCKET_PATH:
            raise ConfigurationError(
                f"the path of {root} is too long for a socket", hint=f"set {NODE_DIR_VARIABLE} to a shorter one"
            )

    def __repr__(self) -> str:
        return f"<NodeDirectory {self.root / self.name}>"

    @classmethod
    def of(cls, access: Mapping[str, object]) -> NodeDirectory:
        """Return where the agent with this access is met."""
        root = os.environ.get(NODE_DIR_VARIABLE) or Path(tempfile.gettempdir()) / f"relay-debug-{_user_id()}"
        inherited = {name: value for name, value in os.environ.items() if name in ACCESS_VARIABLES}
        here = os.getcwd() if os.path.exists(_OLD_CONFIG_FILE) else ""  # noqa: PTH109, PTH110 - as cheap as can be
        text = json.dumps([dict(access), inherited, here], sort_keys=True, default=str)
        return cls(Path(root), hashlib.sha256(text.encode()).hexdigest()[:12])

    @property
    def socket_path(self) -> Path:
        """Where the agent is met."""
        return self.root / f"{self.name}.sock"

    @property
    def lock_path(self) -> Path:
        """What the agent holds."""
        return self.root / f"{self.name}.lock"

    def require_private(self) -> None:
        """Make sure that no other user can pose as the agent here.

        Raises:
            ConfigurationError: others can enter the directory, or it is none.
            FileNotFoundError: it is not there.
        """
        found = self.root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != _user_id() or found.st_mode & 0o077:
            raise ConfigurationError(
                f"{self.root} is not a private directory of this user",
                hint=f"remove it, or set {NODE_DIR_VARIABLE} to a directory with mode 0700",
            )

    def try_lock(self) -> int | None:
        """Return a descriptor that holds the lock until it is closed, or None if an agent lives.

        Raises:
            ConfigurationError: the directory is not safe, or cannot be had; this system has no such locks.
        """
        try:
            import fcntl  # noqa: PLC0415 - not there on Windows
        except ImportError:
            raise ConfigurationError(
                "debugging a job needs file locks and Unix sockets", hint="run it on Linux"
            ) from None
        while True:
            try:
                descriptor = self._open_lock()
            except FileNotFoundError:  # an agent that leaves has taken the directory along
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._is_current(descriptor):
                return descriptor
            os.close(descriptor)

    def clean(self) -> None:
        """Remove what the agent leaves behind; its lock is held."""
        for path in (*self.root.glob(f"{self.name}-*"), self.socket_path, self.lock_path):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are in it
            self.root.rmdir()

    def sweep(self) -> None:
        """Remove what agents with other names have left that cannot clean up any more."""
        for path in list(self.root.glob("*.lock")):
            other = NodeDirectory(self.root, path.stem)
            if (lock := other.try_lock()) is not None:
                other.clean()
                os.close(lock)

    def _open_lock(self) -> int:
        try:
            with contextlib.suppress(FileExistsError):
                self.root.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise ConfigurationError(
                f"{self.root} cannot be made: {error.strerror}",
                hint=f"set {NODE_DIR_VARIABLE} to a directory of your own",
            ) from error
        self.require_private()
        return os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.lock_path.stat())
        except FileNotFoundError:
            return False


def _user_id() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0

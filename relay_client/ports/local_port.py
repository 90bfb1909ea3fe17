"""Local ports: the grammar of `--forward`, and locks, so that two relay-clients never share one."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from relay_client.agents.roster import Destination
from relay_client.ui.text import clock
from relay_client.user_directory import login_name, make_private, shared_directory, user_directory
from relay_core.errors import LocalPortInUse, UsageError
from relay_core.foreign import printable
from relay_core.value_parsers import is_port

# Local ports, and the grammar of `--forward`: `6006`, `6006:16006` (remote:local), `1/6006` (the node with rank 1).
#
# Bad: `0`, `70000`, `6006:`, `x/6006`, `6006:16006:1`.

_FORWARD = re.compile(r"(?:([0-9]{1,5})/)?([0-9]{1,5})(?::([0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True)
class LocalPort:
    """A port on this machine and its destination."""

    port: int
    destination: Destination

    def __str__(self) -> str:
        plain = self.port == self.destination.port and self.destination.node_rank is None
        return f"port {self.port}" if plain else f"port {self.port} (to {self.destination})"


def debugger_ports(ports: Iterable[int]) -> list[LocalPort]:
    """Return the local ports for `--ports`, each of which leads to the logical port with the same number."""
    return [LocalPort(port, Destination(port)) for port in ports]


def all_ranks_port(port: int) -> LocalPort:
    """Return the local port for `--all-ranks`."""
    return LocalPort(port, Destination(0, is_all_ranks=True))


def parse_forwards(texts: Iterable[str]) -> list[LocalPort]:
    """Parse the values of `--forward`.

    Raises:
        UsageError: a value is invalid, or a local port is used twice.
    """
    found: dict[int, LocalPort] = {}
    for text in texts:
        local = _parse(text)
        if local.port in found:
            raise UsageError(
                f"local port {local.port} is used twice",
                hint="use a different local port for each value, as in 6006:16006",
            )
        found[local.port] = local
    return list(found.values())


def _parse(text: str) -> LocalPort:
    match = _FORWARD.fullmatch(text.strip())
    if match:
        remote, local = int(match[2]), int(match[3] or match[2])
        if is_port(remote) and is_port(local):
            node_rank = int(match[1]) if match[1] else None
            return LocalPort(local, Destination(remote, is_forward=True, node_rank=node_rank))
    raise UsageError(f"invalid port: '{text}'", hint="use 6006, 6006:16006 (remote:local) or 1/6006 (node 1)")


# Locks on the local ports that this user's relay-clients use: one locked file for each port.
#
#     /tmp/relay-client-1000/           mode 0700; not in RELAY_CLIENT_DIR, because a machine has each port once
#         5678.lock                     locked (flock) by a relay-client while it uses port 5678
#
# The lock distinguishes a port that another relay-client uses (an error) from a port on which an editor is listening
# (the job connects to it). The kernel releases the lock when the process that holds it exits, for whatever reason. The
# file names this process: {"pid": 4711, "user": "alice", "since": 1770000000.0}. The content of an unlocked file has no
# meaning.

MAX_OWNER = 4096
"""Maximum number of bytes in a lock file."""


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
        """Return the owner of a lock that this process is about to take."""
        return cls(os.getpid(), login_name(), time.time())

    @classmethod
    def decode(cls, text: bytes) -> PortOwner | None:
        """Return the owner that a lock file names; None if it names none, for example while it is being written."""
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


class PortLock:
    """The lock of one port.

    Args:
        port: The local port.
        roots: Directories for the lock file, of which the first usable one is used; by default, the directory that all
            relay-clients of this user share, or else RELAY_CLIENT_DIR.

    Raises:
        LocalPortInUse: another relay-client is using the port; the sentence names it if its lock file does.
    """

    def __init__(self, port: int, *roots: Path) -> None:
        self._descriptor: int | None = None
        for root in roots or (shared_directory(), user_directory()):
            self._path = root / f"{port}.lock"
            self._descriptor = _lock(self._path, port)
            if self._descriptor is not None:
                break

    @property
    def is_held(self) -> bool:
        """True if this process holds the lock; False if locks are not available."""
        return self._descriptor is not None

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()  # still locked; a process that has already opened this file creates a new one
            os.close(self._descriptor)
            self._descriptor = None
            with contextlib.suppress(OSError):  # the directory may contain other locks
                self._path.parent.rmdir()


def _lock(path: Path, port: int) -> int | None:
    """Return a descriptor that holds the lock, or None if locks are not available.

    Raises:
        LocalPortInUse: another process holds the lock.
    """
    try:
        fcntl = importlib.import_module("fcntl")  # does not exist on Windows
    except ImportError:
        return None
    while True:
        try:
            make_private(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except FileNotFoundError:  # another process has just removed the directory
            continue
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = PortOwner.decode(os.read(descriptor, MAX_OWNER))
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise _locked(port, owner) from None
            return None
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the file
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                with contextlib.suppress(OSError):  # a full disk leaves the file empty
                    os.ftruncate(descriptor, 0)  # it may name a relay-client that was killed
                    os.write(descriptor, PortOwner.this_process().encode())
                return descriptor
        os.close(descriptor)


def _locked(port: int, owner: PortOwner | None) -> LocalPortInUse:
    if owner is None:
        return in_use_error(port, "another relay-client")
    return LocalPortInUse(
        f"port {port} on this machine is in use by another relay-client ({owner})",
        hint=f"if 'relay-client status' lists it, 'relay-client stop --client {owner.pid}' stops it; otherwise, choose "
        "other ports with --ports",
    )


def in_use_error(port: int, by: str) -> LocalPortInUse:
    """Return the error for a port that another program uses; "" if it is unknown which."""
    return LocalPortInUse(
        f"port {port} on this machine is in use{f' by {by}' if by else ''}",
        hint="stop the other program (often an earlier relay-client), or choose other ports with --ports",
    )

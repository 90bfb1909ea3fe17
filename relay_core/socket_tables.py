"""Finds the user who owns a TCP socket of this machine, in `/proc/net/tcp` and `/proc/net/tcp6`.

Every user of a machine can reach a loopback port. A program that opens or dials such a port uses this module to
identify the user at the other end. A single connection is looked up with `socket_diag` instead if the system supports
it.

Whether this system shows owners at all is decided once, with a connection of this program, and only if the attempt
gives a clear answer. From then on, an owner that cannot be determined, for example because the program has no
descriptors left, is an `OSError`, and the caller must refuse the connection. All descriptors stay open for that reason.

    sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
     0: 0100007F:162E 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000  0     31337 ...

Addresses are 32-bit words in the byte order of the machine. A row with inode 0 belongs to no process: the program has
closed the socket or has not accepted it yet. The kernel shows uid 0 in such a row, which has no meaning.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import TracebackType

from relay_core.socket_diag import SocketQueries

__all__ = [
    "ROOT",
    "OwnersNotShown",
    "SocketTables",
    "TableRow",
    "listener_owners",
    "own_user",
    "parse_table",
    "shared_tables",
]

PROC_NET = Path("/proc/net")
ROOT = 0
"""The uid of root, which has all permissions anyway; forwarders, such as `kubectl port-forward` and WSL, connect as
root."""
LISTENING = 0x0A
"""TCP_LISTEN in the kernel's `enum` of states (include/net/tcp_states.h)."""
MAX_READS = 3
"""The tables are read again if a connection is missing, because sockets that open and close during the read can hide a
row."""
MAX_FIRST_READS = 20
"""The same before it is decided that the tables do not list this system's connections."""
READ_SIZE = 256 * 1024
MIN_FIELDS = 10
LOOPBACK = "127.0.0.1"
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened on
IPV4_BYTES = 4

UNSUPPORTED = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ENOSYS,
        errno.EINVAL,
        errno.EAGAIN,
        errno.EPROTO,
        errno.EOPNOTSUPP,
        errno.EAFNOSUPPORT,
        errno.EPROTONOSUPPORT,
        errno.ECONNREFUSED,
    }
)
"""Errors of a system that has no tables or queries, forbids them, or has another form of them. After any other error,
such as EMFILE, nothing is decided."""

Address = tuple[str, int]


class OwnersNotShown(Exception):
    """This system never shows who owns a socket."""


@dataclass(frozen=True)
class TableRow:
    """One socket."""

    local: Address
    """IPv4-mapped IPv6 addresses are shown as IPv4."""
    remote: Address
    is_listening: bool
    uid: int
    inode: int

    @property
    def owner(self) -> int | None:
        """The user whose process has the socket; None if no process has it."""
        return self.uid if self.inode else None


@dataclass(frozen=True)
class _Shown:
    """What this system shows."""

    by_query: bool
    """Whether a single connection can be looked up."""
    by_table: bool
    """Whether the tables list this system's connections."""


class SocketTables:
    """The kernel's tables of TCP sockets. Every method may be called from any thread, and in forked children.

    Args:
        directory: Directory of the tables; by default those of this process's network namespace, of which single
            connections are also looked up with queries.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or PROC_NET
        self._queries = SocketQueries() if directory is None else None
        self._files: dict[str, int] = {}
        """Open descriptors of the tables."""
        self._shown: _Shown | None = None
        """None until it is decided."""

    def __repr__(self) -> str:
        return f"<SocketTables {self._directory} {self._shown}>"

    def __enter__(self) -> SocketTables:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def shows_owners(self) -> bool:
        """False if this system never shows who owns a socket; True also while that cannot be determined."""
        try:
            shown = self._decided()
        except OSError:
            return True
        return shown.by_query or shown.by_table

    def listener_owners(self, port: int) -> set[int]:
        """Return the users who could accept a connection to 127.0.0.1 on `port`; empty if nothing is listening.

        Raises:
            OwnersNotShown: this system does not show who owns a socket.
            OSError: the owner cannot be determined at the moment.
        """
        if not self._decided().by_table:
            raise OwnersNotShown
        return listener_owners(self._read(port), port)

    def listener_inodes(self, port: int) -> set[int]:
        """Return the inodes of the sockets that listen on a local port.

        Raises:
            OSError: the tables cannot be read, or have an unknown form.
        """
        return {row.inode for row in self._read(port) if row.is_listening and row.local[1] == port and row.inode}

    def has_connection(self, port: int) -> bool:
        """Return whether a process has accepted a connection on `port` and has not closed it.

        Raises:
            OSError: the tables cannot be read.
        """
        rows = self._read(port)
        return any(row.local[1] == port and not row.is_listening and row.owner is not None for row in rows)

    def has_client(self, port: int) -> bool:
        """Return whether a process on this machine is connected to port `port` of this machine.

        Raises:
            OSError: the tables cannot be read.
        """
        return any(row.remote[1] == port and row.owner is not None for row in self._read(port))

    def peer_owner(self, own: Address, peer: Address) -> int | None:
        """Return the user at the other end of a loopback connection.

        Args:
            own: The address of this end.
            peer: The address of the other end.

        Returns:
            A uid, or None while no process owns the other end, because it was closed or has not been accepted yet.

        Raises:
            OwnersNotShown: this system does not show who owns a socket.
            OSError: the owner cannot be determined at the moment.
        """
        own, peer = _plain(own), _plain(peer)
        shown = self._decided()
        if shown.by_query:
            return self._look_up(peer, own)
        if shown.by_table:
            return self._search(peer, own, MAX_READS)
        raise OwnersNotShown

    def close(self) -> None:
        """Close all descriptors; a later call opens them again."""
        if self._queries is not None:
            self._queries.close()
        while self._files:
            os.close(self._files.popitem()[1])

    def _decided(self) -> _Shown:
        """Return what this system shows; the first call that finds out decides.

        Raises:
            OSError: nothing can be decided at the moment.
        """
        if self._shown is None:
            self._shown = self._find_out()
        return self._shown

    def _find_out(self) -> _Shown:
        if not (hasattr(socket, "AF_NETLINK") or (self._directory / "tcp").exists()):
            return _Shown(by_query=False, by_table=False)
        with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as client:
            local, remote = client.getsockname(), client.getpeername()
            return _Shown(
                by_query=_is_shown(lambda: self._look_up(local, remote)),
                by_table=_is_shown(lambda: self._search(local, remote, MAX_FIRST_READS)),
            )

    def _look_up(self, local: Address, remote: Address) -> int | None:
        found = self._queries.find_connection(local, remote) if self._queries else None
        return found.uid if found and found.inode else None

    def _search(self, local: Address, remote: Address, reads: int) -> int | None:
        for _ in range(reads):
            for row in self._read(local[1]):
                if (row.local, row.remote, row.is_listening) == (local, remote, False):
                    return row.owner
        return None

    def _read(self, port: int) -> list[TableRow]:
        try:
            rows = list(parse_table(self._content("tcp"), port))
            with contextlib.suppress(FileNotFoundError):  # a system without IPv6
                rows += parse_table(self._content("tcp6"), port)
        except ValueError:
            raise OSError(errno.EPROTO, "the table of sockets has an unknown form") from None
        return rows

    def _content(self, name: str) -> str:
        try:
            content = self._reread(name)
        except OSError:  # the descriptor may have been broken
            with contextlib.suppress(KeyError, OSError):
                os.close(self._files.pop(name))
            content = self._reread(name)
        return content.decode("ascii")

    def _reread(self, name: str) -> bytes:
        """Read a table from its beginning, through a descriptor that stays open."""
        if name not in self._files:
            self._files[name] = os.open(self._directory / name, os.O_RDONLY)
        descriptor, content = self._files[name], b""
        while piece := os.pread(descriptor, READ_SIZE, len(content)):
            content += piece
        return content


@functools.cache
def shared_tables() -> SocketTables:
    """Return the tables of this program, which keep their descriptors until the program exits."""
    return SocketTables()


def listener_owners(rows: Iterable[TableRow], port: int) -> set[int]:
    """Return the users who could accept a connection to 127.0.0.1 on `port`; empty if nothing is listening."""
    listeners = [row for row in rows if row.is_listening and row.local[1] == port]
    for hosts in ({LOOPBACK}, WILDCARDS):  # the kernel prefers the exact address
        if owners := {row.uid for row in listeners if row.local[0] in hosts}:
            return owners
    return set()


def _is_shown(owner_of_own_socket: Callable[[], int | None]) -> bool:
    """Return whether a way to find the owner works.

    Raises:
        OSError: that cannot be determined at the moment.
    """
    try:
        return owner_of_own_socket() is not None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return False


def own_user() -> int:
    """Return the uid that owns this process's sockets; -1 on a system without uids."""
    return os.geteuid() if hasattr(os, "geteuid") else -1


def parse_table(text: str, port: int) -> Iterator[TableRow]:
    """Parse only the rows of a table that mention the given port; a busy machine has thousands of rows.

    Raises:
        ValueError: a row does not have the documented form.
    """
    mention = f":{port:04X} "
    for line in text.splitlines()[1:]:
        if mention not in line:
            continue
        fields = line.split()
        if len(fields) < MIN_FIELDS:
            raise ValueError("a row of the socket table is too short")
        local, remote, state, uid, inode = fields[1], fields[2], fields[3], fields[7], fields[9]
        yield TableRow(_address(local), _address(remote), int(state, 16) == LISTENING, int(uid), int(inode))


def _address(text: str) -> Address:
    words, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    host = IPv4Address(packed) if len(packed) == IPV4_BYTES else IPv6Address(packed)
    return _plain((str(host), int(port, 16)))


def _plain(address: Address) -> Address:
    """Return an IPv4-mapped address as IPv4, and any other address in its shortest form."""
    host, port = address
    if ":" not in host:
        return host, port
    ipv6 = IPv6Address(host)
    return str(ipv6.ipv4_mapped or ipv6), port

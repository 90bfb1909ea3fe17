"""Finds the user who owns a TCP socket of this machine, in `/proc/net/tcp` and `/proc/net/tcp6`.

Every user of a machine can reach a loopback port. A program that opens or dials such a port uses this module to
identify the user at the other end. A single connection is looked up with `socket_diag` instead if the system supports
it.

    sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
     0: 0100007F:162E 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000  0     31337 ...

Addresses are 32-bit words in the byte order of the machine. A row with inode 0 belongs to no process: the program has
closed the socket or has not accepted it yet. The kernel shows uid 0 in such a row, which has no meaning.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from relay_core import socket_diag

__all__ = ["ROOT", "OwnerUnknown", "SocketTables", "TableRow", "own_user", "parse_table"]

PROC_NET = Path("/proc/net")
ROOT = 0
"""The uid of root, which has all permissions anyway; forwarders, such as `kubectl port-forward` and WSL, connect as
root."""
LISTENING = 0x0A
"""TCP_LISTEN in the kernel's `enum` of states (include/net/tcp_states.h)."""
MAX_READS = 3
"""The tables are read again if a connection is missing, because sockets that open and close during the read can hide a
row."""
MIN_FIELDS = 10
LOOPBACK = "127.0.0.1"
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened on
IPV4_BYTES = 4

Address = tuple[str, int]


class OwnerUnknown(Exception):
    """This system does not show who owns the socket."""


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


class SocketTables:
    """The kernel's tables of TCP sockets.

    Args:
        directory: Directory of the tables; by default those of this process's network namespace.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or PROC_NET
        self._can_look_up = directory is None
        """False if single connections cannot be looked up in the kernel, or the tables are not this machine's."""

    def __repr__(self) -> str:
        return f"<SocketTables {self._directory}>"

    @property
    def is_readable(self) -> bool:
        """True if this system shows who owns a socket."""
        try:
            self._read(0)
        except OwnerUnknown:
            return False
        return True

    def listener_owners(self, port: int) -> set[int]:
        """Return the users who could accept a connection to 127.0.0.1 on `port`.

        Raises:
            OwnerUnknown: the tables cannot be read, or list no such listener.
        """
        listeners = [row for row in self._read(port) if row.is_listening and row.local[1] == port]
        for hosts in ({LOOPBACK}, WILDCARDS):  # the kernel prefers the exact address
            if owners := {row.uid for row in listeners if row.local[0] in hosts}:
                return owners
        raise OwnerUnknown

    def has_connection(self, port: int) -> bool:
        """Return whether a process has accepted a connection on `port` and has not closed it.

        Raises:
            OwnerUnknown: the tables cannot be read.
        """
        rows = self._read(port)
        return any(row.local[1] == port and not row.is_listening and row.owner is not None for row in rows)

    def has_client(self, port: int) -> bool:
        """Return whether a process on this machine is connected to port `port` of this machine.

        Raises:
            OwnerUnknown: the tables cannot be read.
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
            OwnerUnknown: the tables cannot be read, or do not even list this end.
        """
        own, peer = _plain(own), _plain(peer)
        if (found := self._look_up(peer, own)) is not None:
            return found.uid if found.inode else None
        if self._look_up(own, peer) is not None:  # the kernel knows this end, and the other end is gone
            return None
        is_listed = False
        for _ in range(MAX_READS):
            connected = {(row.local, row.remote): row for row in self._read(own[1]) if not row.is_listening}
            is_listed = is_listed or (own, peer) in connected
            if (row := connected.get((peer, own))) is not None:
                return row.owner
        if not is_listed:
            raise OwnerUnknown
        return None

    def _look_up(self, local: Address, remote: Address) -> socket_diag.DiagSocket | None:
        """Return one end of a connection; None if the kernel does not show it or does not support the query."""
        try:
            return socket_diag.find_connection(local, remote) if self._can_look_up else None
        except OSError:
            self._can_look_up = False
            return None

    def _read(self, port: int) -> list[TableRow]:
        rows: list[TableRow] = []
        try:
            rows += parse_table((self._directory / "tcp").read_text("ascii"), port)
            if (ipv6 := self._directory / "tcp6").exists():
                rows += parse_table(ipv6.read_text("ascii"), port)
        except (OSError, ValueError):
            raise OwnerUnknown from None
        return rows


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

"""Finds the user who owns a TCP socket of this machine, in `/proc/net/tcp`, in `/proc/net/tcp6` or by sock_diag(7).

Why the kernel is asked at all: a debugger's port on 127.0.0.1 is remote code execution for every user of the machine,
and neither end can authenticate: editors send no credentials, and debugpy asks them for none. A Unix socket, with the
file system's permissions or SO_PEERCRED, would need an editor that connects to one. So the only evidence about the
other end of a connection is its uid in the kernel. The pid is not needed: what must be kept out are other users.
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
from typing import NamedTuple

# Looks up one TCP connection of this machine in the kernel, by its addresses (sock_diag(7)).
#
# `/proc/net/tcp` shows the same, but each read lists all sockets of the machine, which takes about 4 microseconds per
# socket.
#
#     request   nlmsghdr, inet_diag_req_v2 (include/uapi/linux/inet_diag.h)
#     response  nlmsghdr, inet_diag_msg, or nlmsgerr (include/uapi/linux/netlink.h)
#
# Ports and addresses are in network byte order, all other fields in the machine's byte order.
#
# Why a netlink message by hand: each port checks each connection before it accepts the next one, and a query takes 0.09
# ms, whereas reading a table of 4,000 rows takes 51 ms (`make bench BENCH="--only ownership"`). The packages that speak
# this protocol are not installed where a job runs, and this module is also imported by debugpy's adapter
# (`adapter_guard`), which must not need more than the standard library. The kernel answers such a query without any
# rights.
#
# What is ugly: for a connection that does not exist, the kernel returns the listener of the port, which belongs to
# somebody else than the connection. `_parse` compares both ports and the state, and this comparison is the check that
# the whole module is for.

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR = 2
NLM_F_REQUEST = 1
TCP_LISTEN = 10
_HEADER = struct.Struct("=IHHII")
"""Header of a netlink message: length, type, flags, sequence number, port id."""
_ERROR = struct.Struct("=i")
"""Error code: a negative errno."""
_REQUEST = struct.Struct("=BBBBI")
"""Family, protocol, extensions, padding, and one bit for each requested state."""
_PORTS = struct.Struct("!HH")
_ADDRESSES = struct.Struct("16s16s")
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""Any interface, then INET_DIAG_NOCOOKIE twice."""
_STATE = struct.Struct("=BBBB")
"""Family, state, timer, retransmissions; ports, addresses, interface and cookie follow."""
_OWNER = struct.Struct("=IIIII")
"""Timeout, receive queue, send queue, uid, inode."""
_OWNER_AT = _STATE.size + _PORTS.size + _ADDRESSES.size + len(_ANY)
RESPONSE_TIMEOUT = 1
"""Timeout in seconds; the kernel has usually responded when `write` returns."""
MAX_RESPONSE = 4096


class DiagSocket(NamedTuple):
    """A socket as the kernel describes it."""

    uid: int
    inode: int
    """0 if no process has it."""


class SocketQueries:
    """Sends queries through a descriptor that stays open, so that a query also succeeds if no descriptor is left.

    Every method may be called from any thread, and in forked children. Each thread takes a descriptor out of the list
    while it uses it, so that no response reaches another thread; usually, there is only one.
    """

    def __init__(self) -> None:
        self._idle: list[tuple[int, int]] = []
        """Open descriptors, each with the id of the process that uses it."""

    def find_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> DiagSocket | None:
        """Return the connected socket with these addresses, both IPv4 or both IPv6; None if the kernel shows none.

        Raises:
            OSError: this system does not support such queries, or the kernel cannot be asked at the moment.
        """
        request = _request(local, remote)
        try:
            response = self._ask(request)
        except OSError:  # the descriptor may have been broken
            self.close()
            response = self._ask(request)
        return _parse(response, local[1], remote[1])

    def close(self) -> None:
        """Close the descriptors."""
        while self._idle:
            with contextlib.suppress(OSError):
                os.close(self._idle.pop()[1])

    def _ask(self, request: bytes) -> bytes:
        descriptor = self._take()
        try:
            os.write(descriptor, request)
            response = os.read(descriptor, MAX_RESPONSE)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        self._idle.append((os.getpid(), descriptor))
        return response

    def _take(self) -> int:
        with contextlib.suppress(IndexError):
            owner, descriptor = self._idle.pop()
            if owner == os.getpid():
                return descriptor
            self._idle.clear()  # this is a forked child, and the parent reads from the same socket
        return _connect()


def _connect() -> int:
    """Return the descriptor of a new socket that is connected to the kernel.

    Raises:
        OSError: this system has no such sockets, or the program has no descriptors left.
    """
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", RESPONSE_TIMEOUT, 0))
        kernel.connect((0, 0))  # only the kernel may respond
        kernel.setblocking(True)
        return kernel.detach()


def _request(local: tuple[str, int], remote: tuple[str, int]) -> bytes:
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    hosts = (socket.inet_pton(family, host) for host, _ in (local, remote))
    body = b"".join(
        (
            _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF),
            _PORTS.pack(local[1], remote[1]),
            _ADDRESSES.pack(*hosts),
            _ANY,
        )
    )
    return _HEADER.pack(_HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + body


def _parse(response: bytes, local_port: int, remote_port: int) -> DiagSocket | None:
    """Parse a response. If no connection has the addresses, the kernel returns the port's listener instead.

    Raises:
        OSError: the kernel refused the request, or the response is too short.
    """
    body = response[_HEADER.size :]
    if len(response) >= _HEADER.size + _ERROR.size and _HEADER.unpack_from(response)[1] == NLMSG_ERROR:
        number = -_ERROR.unpack_from(body)[0]
        if number == errno.ENOENT:
            return None
        raise OSError(number, os.strerror(number))
    if len(body) < _OWNER_AT + _OWNER.size:
        raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
    is_same = _PORTS.unpack_from(body, _STATE.size) == (local_port, remote_port)
    if not is_same or _STATE.unpack_from(body)[1] == TCP_LISTEN:
        return None
    *_, uid, inode = _OWNER.unpack_from(body, _OWNER_AT)
    return DiagSocket(uid, inode)


# Finds the user who owns a TCP socket of this machine, in `/proc/net/tcp` and `/proc/net/tcp6`.
#
# Every user of a machine can reach a loopback port. A program that opens or dials such a port uses this module to
# identify the user at the other end. A single connection is looked up with sock_diag(7) instead if the system supports
# it.
#
# Whether this system shows owners at all is decided once for each way, with a connection of this program, and only if
# the attempt gives a clear answer. The tables are tried only if they are needed: debugpy's adapter, which needs queries
# only, took 0.4 s longer to start on a machine with 11,000 sockets. From then on, an owner that cannot be determined,
# for example because the program has no descriptors left, is an `OSError`, and the caller must refuse the connection.
# All descriptors stay open for that reason.
#
# Why "once", and why not for each connection: without this decision, an error means either that the system never shows
# owners, in which case programs continue without the check, or that it cannot show them at the moment, in which case
# they must not. Treating both alike is either unusable in some containers, or lets somebody who has exhausted the
# descriptors of a program or of the machine switch the check off. So a program first looks up a connection of its own,
# of which it knows that it exists.
#
# Both ways remain, because the tables are all that some systems allow, and because listeners and inodes are looked up
# in them. That is not done for each connection, so its cost does not matter.
#
#     sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
#      0: 0100007F:162E 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000  0     31337 ...
#
# Addresses are 32-bit words in the byte order of the machine. A row with inode 0 belongs to no process: the program has
# closed the socket or has not accepted it yet. The kernel shows uid 0 in such a row, which has no meaning.

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
_Find = Callable[[Address, Address], int | None]
"""Finds the owner of the socket with these two addresses."""


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
        self._is_shown: dict[_Find, bool] = {}
        """The ways to find an owner for which it is decided whether they work."""

    def __enter__(self) -> SocketTables:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    @property
    def shows_owners(self) -> bool:
        """False if this system never shows who owns a socket; True also while that cannot be determined."""
        try:
            return self._decided(self._look_up) or self._decided(self._search_first)
        except OSError:
            return True

    def listener_owners(self, port: int) -> set[int]:
        """Return the users who could accept a connection to 127.0.0.1 on `port`; empty if nothing is listening.

        Raises:
            OwnersNotShown: this system does not show who owns a socket.
            OSError: the owner cannot be determined at the moment.
        """
        if not self._decided(self._search_first):
            raise OwnersNotShown
        return listener_owners(self._read(port), port)

    def listener_inodes(self, port: int) -> set[int]:
        """Return the inodes of the sockets that listen on a local port.

        Raises:
            OSError: the tables cannot be read, or have an unknown form.
        """
        return {row.inode for row in self._read(port) if row.is_listening and row.local[1] == port and row.inode}

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
        if self._decided(self._look_up):
            return self._look_up(peer, own)
        if self._decided(self._search_first):
            return self._search(peer, own, MAX_READS)
        raise OwnersNotShown

    def close(self) -> None:
        """Close all descriptors; a later call opens them again."""
        if self._queries is not None:
            self._queries.close()
        while self._files:
            os.close(self._files.popitem()[1])

    def _decided(self, find: _Find) -> bool:
        """Return whether a way to find the owner of a connection works; the first call that finds out decides.

        Raises:
            OSError: nothing can be decided at the moment.
        """
        if find not in self._is_shown:
            self._is_shown[find] = self._finds_own(find)
        return self._is_shown[find]

    def _finds_own(self, find: _Find) -> bool:
        if not (hasattr(socket, "AF_NETLINK") or (self._directory / "tcp").exists()):
            return False
        with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as client:
            try:
                return find(client.getsockname(), client.getpeername()) is not None
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                return False

    def _look_up(self, local: Address, remote: Address) -> int | None:
        found = self._queries.find_connection(local, remote) if self._queries else None
        return found.uid if found and found.inode else None

    def _search_first(self, local: Address, remote: Address) -> int | None:
        return self._search(local, remote, MAX_FIRST_READS)

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
        if not hasattr(os, "pread"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
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

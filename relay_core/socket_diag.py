"""Looks up one TCP connection of this machine in the kernel, by its addresses (sock_diag(7)).

`/proc/net/tcp` shows the same, but each read lists all sockets of the machine, which takes about 4 microseconds per
socket.

    request   nlmsghdr, inet_diag_req_v2 (include/uapi/linux/inet_diag.h)
    response  nlmsghdr, inet_diag_msg, or nlmsgerr (include/uapi/linux/netlink.h)

Ports and addresses are in network byte order, all other fields in the machine's byte order.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from typing import NamedTuple

__all__ = ["DiagSocket", "SocketQueries"]

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

    def __repr__(self) -> str:
        return f"<SocketQueries idle={len(self._idle)}>"

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
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as kernel:
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

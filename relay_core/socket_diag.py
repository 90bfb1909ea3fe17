"""Looks up one TCP connection of this machine in the kernel, by its addresses (sock_diag(7)).

`/proc/net/tcp` shows the same, but each read lists all sockets of the machine, which takes about 4 microseconds per
socket.

    request   nlmsghdr, inet_diag_req_v2 (include/uapi/linux/inet_diag.h)
    response  nlmsghdr, inet_diag_msg, or nlmsgerr (include/uapi/linux/netlink.h)

Ports and addresses are in network byte order, all other fields in the machine's byte order.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import NamedTuple

__all__ = ["DiagSocket", "find_connection"]

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
RESPONSE_TIMEOUT = 1.0
"""Timeout in seconds; the kernel has usually responded when `send` returns."""


class DiagSocket(NamedTuple):
    """A socket as the kernel describes it."""

    uid: int
    inode: int
    """0 if no process has it."""


def find_connection(local: tuple[str, int], remote: tuple[str, int]) -> DiagSocket | None:
    """Return the connected socket with these addresses, both IPv4 or both IPv6; None if the kernel shows none.

    Raises:
        OSError: this system does not support such queries.
    """
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(RESPONSE_TIMEOUT)
        kernel.connect((0, 0))  # only the kernel may respond
        kernel.send(_request(local, remote))
        return _parse(kernel.recv(4096), local[1], remote[1])


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

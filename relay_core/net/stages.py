"""The first stages of a connection on their own, for diagnosis: name resolution and TCP.

Their errors are those of `relay_core.net.websocket.handshake`, where one call performs all stages.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.net.websocket.opening_errors import OPEN_TIMEOUT, opening_mapped

__all__ = ["answers", "connect_tcp", "resolve"]


async def resolve(host: str, port: int, *, within: float = OPEN_TIMEOUT) -> list[str]:
    """Return the addresses of a host in the order in which they are tried.

    Raises:
        RelayUnreachable: The name has no address, or was not resolved within `within` seconds.
    """
    with opening_mapped(host, within):
        async with timeout(within):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def connect_tcp(host: str, port: int, *, within: float = OPEN_TIMEOUT) -> str:
    """Connect to a TCP port, close the connection, and return the address that accepted it.

    Raises:
        RelayUnreachable: No address accepted a connection within `within` seconds.
    """
    with opening_mapped(f"{host}:{port}", within):
        async with timeout(within):
            _, writer = await asyncio.open_connection(host, port)
    address = str(writer.get_extra_info("peername")[0])
    writer.close()
    with contextlib.suppress(OSError):  # the peer may have reset the connection
        await writer.wait_closed()
    return address


async def answers(address: str, port: int, *, within: float) -> bool:
    """Return whether an address accepts or refuses a TCP connection, instead of leaving it unanswered."""
    try:
        async with timeout(within):
            _, writer = await asyncio.open_connection(address, port)
    except ConnectionRefusedError:
        return True
    except (*TIMEOUT_ERRORS, OSError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True

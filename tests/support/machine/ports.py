"""Free ports, safe for tests that run at the same time, in this run or in another one on the same machine.

Each process takes its ports from a block of its own, and holds the block by the block's first port. Otherwise a port
that a test has just closed, to see what a program does then, might be taken by the test of another process.
"""

import asyncio
import atexit
import functools
import itertools
import socket
from collections.abc import Iterator

_RANGE = range(12000, 32000)
"""Below the kernel's range for outgoing connections (32768 up), so that none of those takes a port in between."""
_BLOCK = 1000
"""Ports of a block: far more than one test needs, so that none gets the same port twice."""


@functools.cache
def _block() -> Iterator[int]:
    """Return the ports of a block that no other process has, over and over."""
    for first in _RANGE[::_BLOCK]:
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", first))
        except OSError:
            holder.close()
            continue
        atexit.register(holder.close)
        return itertools.cycle(range(first + 1, first + _BLOCK))
    raise AssertionError(f"all {len(_RANGE) // _BLOCK} blocks of ports are in use by other processes")


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on; each call in this process gives another one."""
    for port in _block():
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")


def consecutive_ports(count: int) -> list[int]:
    """Return so many free ports in a row."""
    ports = [free_port()]
    while len(ports) < count:
        port = free_port()
        ports = [*ports, port] if port == ports[-1] + 1 else [port]
    return ports


async def until_closed(port: int) -> None:
    """Wait until nobody listens on a port of 127.0.0.1 any more."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        writer.close()
        await asyncio.sleep(0.05)

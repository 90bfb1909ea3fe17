"""Free ports, safe for tests that run at the same time."""

import asyncio
import itertools
import os
import socket

_RANGE = range(20000, 30000)
"""Below the kernel's range for outgoing connections (32768 up), so that none of those takes a port in between."""
_counter = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on; each call in this process gives another one."""
    for number in _counter:
        port = _RANGE[number % len(_RANGE)]
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

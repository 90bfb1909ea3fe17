"""Free ports, safe for tests that run at the same time."""

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

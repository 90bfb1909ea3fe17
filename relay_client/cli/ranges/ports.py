"""The grammar of `--ports`: a list of ports such as `5678`, `5678-5680` or `5678,5690`."""

from __future__ import annotations

from relay_core.errors import UsageError
from relay_core.ranges import expand_ranges, parse_ranges
from relay_core.values import MAX_PORT, is_port

__all__ = ["parse_ports"]

MAX_PORTS = 1024
"""Below the usual limit on open files in a shell (256 or 1024); no job needs more."""

_WHAT = "list of ports"


def parse_ports(text: str) -> list[int]:
    """Return the ports in the order written.

    Raises:
        UsageError: the text is not a list of ports, lists a port twice, or lists more than `MAX_PORTS`.
    """
    ranges = parse_ranges(text, what=_WHAT, example="5678, 5678-5680 or 5678,5690")
    if not all(is_port(part[0]) and is_port(part[-1]) for part in ranges):
        raise UsageError(f"invalid {_WHAT}: '{text}' is outside 1-{MAX_PORT}", hint=f"use ports from 1 to {MAX_PORT}")
    return expand_ranges(ranges, what=_WHAT, limit=MAX_PORTS)

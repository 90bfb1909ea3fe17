"""The logical port of a rank, used in `relay-client --ports`: `--debug-port` plus the rank."""

from __future__ import annotations

__all__ = ["LAST_PORT", "logical_port"]

LAST_PORT = 65535


def logical_port(debug_port: int, rank: int) -> int:
    """Return the logical port; above `LAST_PORT` if there is none for this rank."""
    return debug_port + rank

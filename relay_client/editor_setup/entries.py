"""The debug configurations that an editor gets: one per rank, each with a local port.

--ports 5678-5680                    ranks 0-2 on these ports
--ranks 4-5                          ranks 4 and 5 on 5682 and 5683: 5678 plus the rank
--ranks 4-5 --ports 7004,7005        ranks 4 and 5 on these ports
--from-targets                       the processes that are registered now
--all-ranks 5600                     an additional configuration for the debug session of all ranks, on this port
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from relay_core.agent_api.announcement import TargetInfo
from relay_core.errors import UsageError
from relay_core.value_parsers import MAX_PORT

__all__ = ["DEFAULT_PORT", "PREFIX", "WHOLE_JOB", "Entry", "entries_for", "entries_of"]

WHOLE_JOB = "whole job"
"""Label of the entry for the debug session of all ranks."""
DEFAULT_PORT = 5678
"""The port of rank 0 unless the job sets another `--debug-port`."""
PREFIX = "Relay: "
"""Prefix of the names of all entries."""


class Entry(NamedTuple):
    """One debug configuration."""

    label: str
    """`rank 3`, or `port 5678` for a process without a rank."""
    port: int

    @property
    def is_job(self) -> bool:
        """True for the debug session of all ranks."""
        return self.label == WHOLE_JOB

    @property
    def name(self) -> str:
        """The name that the editor shows."""
        return f"{PREFIX}{self.label}"


def entries_for(ports: Sequence[int] | None, ranks: Sequence[int] | None) -> list[Entry]:
    """Return the entries for the ports and ranks on a command line.

    Args:
        ports: Value of `--ports`, or None.
        ranks: Value of `--ranks`, or None.

    Raises:
        UsageError: the number of ranks differs from the number of ports, or a rank is too large for a port.
    """
    ranks = ranks if ranks is not None else range(len(ports or [DEFAULT_PORT]))
    if ports is None:
        ports = [DEFAULT_PORT + rank for rank in ranks]
    if len(ports) != len(ranks):
        raise UsageError(
            f"--ranks has {len(ranks)} ranks, but --ports has {len(ports)} ports",
            hint=f"give one port for each rank, or omit --ports: rank n then has port {DEFAULT_PORT} plus n",
        )
    if max(ports) > MAX_PORT:
        raise UsageError(
            f"rank {max(ranks)} would have port {max(ports)}, but the highest port is 65535",
            hint="specify the port of that rank with --ports",
        )
    return [Entry(f"rank {rank}", port) for rank, port in zip(ranks, ports, strict=True)]


def entries_of(targets: Iterable[TargetInfo], ranks: Collection[int] | None) -> list[Entry]:
    """Return the entries of registered processes, by rank; processes without a rank come last.

    Args:
        targets: The processes.
        ranks: The ranks to include; None for all processes, with or without a rank.

    Raises:
        UsageError: no process matches.
    """
    found = {target.port: target for target in targets if ranks is None or target.rank in ranks}
    if not found:
        raise UsageError(
            "no process is registered" + (" with these ranks" if ranks is not None else ""),
            hint="run 'relay-client targets' to see what is registered, or give --ports instead of --from-targets",
        )
    labels = Counter(target.label for target in found.values())
    ordered = sorted(found.values(), key=lambda target: (target.rank is None, target.rank or 0, target.port))
    return [
        Entry(target.label if labels[target.label] == 1 else f"{target.label} ({target.port})", target.port)
        for target in ordered
    ]

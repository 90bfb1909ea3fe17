"""Resource usage of a process and its node as narrow table cells: ` 1.2` processors, `3.1G` of memory. No I/O.

Cells in one column have the same width, so that columns do not move when numbers change.
"""

from __future__ import annotations

from relay_core.agent_api.resources.usage import GpuShare, GpuUsage, NodeUsage
from relay_core.value_parsers import format_ranges

__all__ = ["USAGE_COLUMNS", "usage_cells"]

USAGE_COLUMNS = ("cpu", "mem", "gpu", "node gpu")
WIDTH = 4
"""Number of characters in a number with its unit."""
UNITS = "BKMGTPE"
"""Powers of 1024."""
TEN, HUNDRED = 10, 100
"""Limits below which numbers have one decimal place: for bytes with a unit, and for processors."""
MAX_NUMBER = 999
"""Largest number in front of a unit, so that any announced number fits."""


def usage_cells(usage: NodeUsage | None, port: int | None = None) -> tuple[str, ...]:
    """Return one cell for each of `USAGE_COLUMNS`; unknown numbers are empty.

    Args:
        usage: The latest sample of the node; None without a monitor.
        port: The logical port of the process; None for a node without processes.
    """
    used = usage.of(port) if usage is not None and port is not None else None
    cells = ("", "", "") if used is None else (_processors(used.cpu), _bytes(used.memory), _shares(used.gpus))
    return *cells, _gpus(usage.gpus) if usage is not None else ""


def _processors(number: float) -> str:
    number = min(number, MAX_NUMBER)
    return (f"{number:.1f}" if round(number, 1) < HUNDRED else f"{number:.0f}").rjust(WIDTH)


def _bytes(number: float) -> str:
    power = 0
    while round(number) > MAX_NUMBER and power < len(UNITS) - 1:
        number, power = number / 1024, power + 1
    number = min(number, MAX_NUMBER)
    digits = f"{number:.1f}" if power and round(number, 1) < TEN else f"{number:.0f}"
    return f"{digits}{UNITS[power]}".rjust(WIDTH)


def _shares(shares: tuple[GpuShare, ...]) -> str:
    """Return the numbers of a process's GPUs, and the memory that it uses on them: `0  31G`, `0-3  98G`."""
    if not shares:
        return ""
    return f"{format_ranges(share.number for share in shares)} {_bytes(sum(share.memory for share in shares))}"


def _gpus(gpus: tuple[GpuUsage, ...]) -> str:
    """Return the average usage of a node's GPUs, and the total memory in use on them: ` 87% 3.1G`."""
    if not gpus:
        return ""
    busy = min(1.0, sum(gpu.busy for gpu in gpus) / len(gpus))
    return f"{f'{busy:.0%}'.rjust(WIDTH)} {_bytes(sum(gpu.memory for gpu in gpus))}"

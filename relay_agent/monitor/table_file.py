"""Appends usage to a CSV file in the outputs of the run: one line for the node, each process and each GPU."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from relay_core.agent_api.resources.usage import NodeUsage

__all__ = ["COLUMNS", "append_usage"]

COLUMNS = ("time", "node", "what", "rank", "port", "cpu", "memory", "total", "busy")


def append_usage(path: Path, node: str, usage: NodeUsage, ranks: Mapping[int, int | None]) -> None:
    """Append the lines of one sample; a new file gets a heading.

    Args:
        path: The file; its directory is created.
        node: Name of the node.
        usage: The sample.
        ranks: The rank of each logical port.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerows(_lines(node, usage, ranks))


def _lines(node: str, usage: NodeUsage, ranks: Mapping[int, int | None]) -> Iterator[tuple[object, ...]]:
    when = f"{usage.time:.1f}"
    yield when, node, "node", "", "", f"{usage.cpu:.3f}", usage.memory, usage.total, ""
    for process in usage.processes:
        rank = ranks.get(process.port)
        yield (
            when,
            node,
            "process",
            "" if rank is None else rank,
            process.port,
            f"{process.cpu:.3f}",
            process.memory,
            "",
            "",
        )
    for number, gpu in enumerate(usage.gpus):
        yield when, node, f"gpu {number} ({gpu.name})", "", "", "", gpu.memory, gpu.total, f"{gpu.busy:.3f}"

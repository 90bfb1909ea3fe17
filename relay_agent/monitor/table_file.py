"""Appends usage to a CSV file in the outputs of the run: one line each for the node, every process and every GPU."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from relay_core.agent_api.resources.usage import NodeUsage

__all__ = ["COLUMNS", "append_usage"]

COLUMNS = (
    *("time", "node", "what", "rank", "port", "cpu", "memory", "total", "busy"),
    *("torch_allocated", "torch_reserved", "torch_peak", "torch_ooms", "torch_retries"),
    *("gpus", "gpu_memory", "gpu_memory_is_reserved"),
)


def append_usage(path: Path, node: str, usage: NodeUsage, ranks: Mapping[int, int | None]) -> None:
    """Append the lines of one sample; a new file starts with a header line.

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
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerows(_lines(node, usage, ranks))


def _lines(node: str, usage: NodeUsage, ranks: Mapping[int, int | None]) -> Iterator[dict[str, object]]:
    base = {"time": f"{usage.time:.1f}", "node": node}
    yield {**base, "what": "node", "cpu": f"{usage.cpu:.3f}", "memory": usage.memory, "total": usage.total}
    for process in usage.processes:
        line: dict[str, object] = {**base, "what": "process", "rank": ranks.get(process.port), "port": process.port}
        line |= {"cpu": f"{process.cpu:.3f}", "memory": process.memory}
        torch = {} if process.allocator is None else asdict(process.allocator)
        line |= {f"torch_{name}": number for name, number in torch.items() if f"torch_{name}" in COLUMNS}
        if process.gpus:
            line["gpus"] = " ".join(str(share.number) for share in process.gpus)
            line["gpu_memory"] = sum(share.memory for share in process.gpus)
            line["gpu_memory_is_reserved"] = str(any(share.is_reserved for share in process.gpus)).lower()
        yield line
    for number, gpu in enumerate(usage.gpus):
        what = {**base, "what": f"gpu {number} ({gpu.name})"}
        yield {**what, "memory": gpu.memory, "total": gpu.total, "busy": f"{gpu.busy:.3f}"}

"""Files of the monitor in the outputs of the run: a TensorBoard event file, without TensorBoard, and a CSV file."""

from __future__ import annotations

import csv
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from relay_core.agent_api.usage import NodeUsage

# Writes usage as a TensorBoard event file, without TensorBoard.
#
# A file is a sequence of records, each a serialized `Event` of tensorflow/core/util/event.proto:
#
#     length u64 | crc of the length u32 | event | crc of the event u32         little-endian; masked CRC-32C
#
#     Event          wall_time 1 double, step 2 int64, file_version 3 string, summary 5 Summary
#     Summary        value 1 repeated: tag 1 string, simple_value 2 float

FILE_VERSION = b"brain.Event:2"
"""The first event of each file (`EventFileWriter` of TensorBoard)."""
POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC-32C, reflected (RFC 3720)."""
MASK_DELTA = 0xA282EAD8
"""Added to a rotated checksum (tensorflow/core/lib/hash/crc32c.h)."""
WORD = 0xFFFFFFFF
GIB = 2.0**30
VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5
"""Wire types of protocol buffers."""


def _table() -> list[int]:
    found = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (POLYNOMIAL if number & 1 else 0)  # noqa: PLW2901 - one bit at a time
        found.append(number)
    return found


class EventLog:
    """One event file.

    Args:
        path: The file, which must not exist; its directory is created with the first event.
        started: Unix time.
    """

    def __init__(self, path: Path, started: float) -> None:
        self._path = path
        self._table = _table()
        self._waiting = self._record(_key(1, DOUBLE) + struct.pack("<d", started) + _field(3, FILE_VERSION))

    def append(self, when: float, step: int, scalars: Mapping[str, float]) -> None:
        """Write an event with the value of each tag.

        Raises:
            OSError: the file cannot be written.
        """
        values = b"".join(
            _field(1, _field(1, tag.encode()) + _key(2, FLOAT) + struct.pack("<f", value))
            for tag, value in scalars.items()
        )
        event = _key(1, DOUBLE) + struct.pack("<d", when) + _key(2, VARINT) + _varint(step) + _field(5, values)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(self._waiting + self._record(event))
        self._waiting = b""

    def _record(self, event: bytes) -> bytes:
        length = struct.pack("<Q", len(event))
        return length + self._checksum(length) + event + self._checksum(event)

    def _checksum(self, data: bytes) -> bytes:
        found = WORD
        for byte in data:
            found = self._table[(found ^ byte) & 0xFF] ^ found >> 8
        found ^= WORD
        return struct.pack("<I", ((found >> 15 | found << 17) + MASK_DELTA) & WORD)


def scalars_of(usage: NodeUsage, ranks: Mapping[int, int | None]) -> Iterator[tuple[str, float]]:
    """Yield the values of a sample by tag: shares in per cent, memory in GiB."""
    yield "node/cpu_percent", 100 * usage.cpu / (usage.cores or 1)
    yield "node/memory_gib", usage.memory / GIB
    for number, gpu in enumerate(usage.gpus):
        yield f"gpu_{number}/busy_percent", 100 * gpu.busy
        yield f"gpu_{number}/memory_gib", gpu.memory / GIB
    yield from process_values(usage, ranks, cpu="cpu_percent", memory="memory", unit="gib", size=GIB)


def process_values(
    usage: NodeUsage, ranks: Mapping[int, int | None], *, cpu: str, memory: str, unit: str, size: float
) -> Iterator[tuple[str, float]]:
    """Yield the values of the processes of a sample by name.

    Args:
        usage: The sample.
        ranks: The rank of each logical port.
        cpu: Name of the processor usage, which is in per cent.
        memory: Name of the memory usage, without its unit.
        unit: Unit of memory, in names.
        size: Bytes in that unit.
    """
    for process in usage.processes:
        rank = ranks.get(process.port)
        name = f"port_{process.port}" if rank is None else f"rank_{rank}"
        yield f"{name}/{cpu}", 100 * process.cpu
        yield f"{name}/{memory}_{unit}", process.memory / size
        for share in process.gpus:
            yield f"{name}/gpu_{share.number}_{memory}_{unit}", share.memory / size
        if (torch := process.allocator) is not None:
            yield f"{name}/torch_allocated_{unit}", torch.allocated / size
            yield f"{name}/torch_reserved_{unit}", torch.reserved / size
            yield f"{name}/torch_peak_{unit}", torch.peak / size
            yield f"{name}/torch_ooms", torch.ooms
            yield f"{name}/torch_retries", torch.retries


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _field(number: int, data: bytes) -> bytes:
    return _key(number, BYTES) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


# Appends usage to a CSV file in the outputs of the run: one line each for the node, every process and every GPU.

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

"""The latest sample in Prometheus' text format, and the server that answers `GET /metrics` with it.

The names are those of OpenTelemetry's semantic conventions (system, process and hw.gpu metrics), changed as
OpenTelemetry's specification for Prometheus prescribes: dots become underscores, and the unit is appended.
OpenTelemetry has no convention for torch.

https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from relay_core.agent_api.usage import NodeUsage
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.net.loopback import FOREIGN_HOST, is_rebound
from relay_core.net.tasks import close_writer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""https://prometheus.io/docs/instrumenting/exposition_formats/"""
MAX_REQUEST = 8192
"""Maximum number of bytes in a request, including its header."""
REQUEST_TIMEOUT = 5.0
"""Timeout in seconds for receiving a request and sending the response."""
MAX_CONNECTIONS = 16
"""Maximum number of connections; a new one replaces the oldest, so that nobody can use up the agent's file descriptors
or keep Prometheus out."""


class MetricsServer:
    """Serves the sample that was last passed to `show`."""

    def __init__(self) -> None:
        self._text = ""
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, None] = {}
        """The open connections, the oldest first."""

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the address is in use or not available.
        """
        # asyncio accepts as many connections at once as the backlog has.
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST, backlog=MAX_CONNECTIONS)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def show(self, text: str) -> None:
        """Set the text of the next responses."""
        self._text = text

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            self._drop_oldest()
        self._connections[writer] = None
        try:
            async with timeout(REQUEST_TIMEOUT):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(request, writer.get_extra_info("sockname")[0]))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, *TIMEOUT_ERRORS):
            writer.transport.abort()
        finally:
            self._connections.pop(writer, None)
            await close_writer(writer)

    def _drop_oldest(self) -> None:
        writer = next(iter(self._connections))
        del self._connections[writer]
        writer.transport.abort()

    def _response(self, request: bytes, address: str) -> bytes:
        first, *headers = request.split(b"\r\n")
        method, path = [*first.split(b" "), b"", b""][:2]
        fields = [header.decode("latin-1").partition(":") for header in headers]
        if any(is_rebound(value.strip(), address) for name, _, value in fields if name.strip().lower() == "host"):
            return _http("403 Forbidden", FOREIGN_HOST)
        if path.partition(b"?")[0] != b"/metrics":
            return _http("404 Not Found", "see /metrics\n")
        if method not in {b"GET", b"HEAD"}:
            return _http("405 Method Not Allowed", "use GET\n", "Allow: GET, HEAD\r\n")
        return _http("200 OK", self._text, with_body=method == b"GET")


def _http(status: str, text: str, fields: str = "", *, with_body: bool = True) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n{fields}"
    return f"{head}Connection: close\r\n\r\n".encode() + (body if with_body else b"")


def as_text(usage: NodeUsage, host: str, ranks: Mapping[int, int | None]) -> str:
    """Return a sample in the text format.

    Args:
        usage: The sample.
        host: Name of the node.
        ranks: The rank of each logical port.
    """
    lines: list[str] = []
    seen = ""
    for name, help_, labels, value in sorted(_metrics(usage, ranks), key=lambda metric: metric[0]):
        if name != seen:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]
            seen = name
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"host_name": host, **labels}.items())
        lines.append(f"{name}{{{pairs}}} {value:g}" if isinstance(value, float) else f"{name}{{{pairs}}} {value}")
    return "\n".join(lines) + "\n"


Metric = tuple[str, str, Mapping[str, str], "int | float"]
"""Name, help, labels and value."""


def _metrics(usage: NodeUsage, ranks: Mapping[int, int | None]) -> Iterator[Metric]:
    cores = usage.cores or 1
    yield "system_cpu_utilization_ratio", "Share of all processors in use.", {}, usage.cpu / cores
    yield "system_cpu_logical_count", "Number of processors in the node.", {}, usage.cores
    used = {"system_memory_state": "used"}
    yield "system_memory_usage_bytes", "Memory in use, without caches.", used, usage.memory
    yield "system_memory_limit_bytes", "Total memory of the node or of its container.", {}, usage.total
    for process in usage.processes:
        rank = ranks.get(process.port)
        labels = {"port": str(process.port)} if rank is None else {"rank": str(rank), "port": str(process.port)}
        yield (
            "process_cpu_utilization_ratio",
            "Share of all processors used by the process.",
            labels,
            process.cpu / cores,
        )
        yield "process_memory_usage_bytes", "Resident set size of the process.", labels, process.memory
        for share in process.gpus:
            on_gpu = {**labels, "hw_id": str(share.number)}
            yield "process_gpu_memory_usage_bytes", "GPU memory used by the process.", on_gpu, share.memory
        if (torch := process.allocator) is not None:
            yield "torch_cuda_memory_allocated_bytes", "GPU memory used by tensors.", labels, torch.allocated
            yield "torch_cuda_memory_reserved_bytes", "GPU memory reserved by torch.", labels, torch.reserved
            yield "torch_cuda_memory_peak_bytes", "Peak memory used by tensors.", labels, torch.peak
            yield "torch_cuda_ooms_total", "Allocations that failed.", labels, torch.ooms
            yield "torch_cuda_retries_total", "Allocations that had to free unused memory first.", labels, torch.retries
    for number, gpu in enumerate(usage.gpus):
        labels = {"hw_id": str(number), "hw_name": gpu.name}
        yield "hw_gpu_utilization_ratio", "Share of the time during which a kernel was running.", labels, gpu.busy
        yield "hw_gpu_memory_usage_bytes", "GPU memory in use.", labels, gpu.memory
        yield "hw_gpu_memory_limit_bytes", "Total memory of the GPU.", labels, gpu.total


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

"""Facts about the monitor's metrics for Prometheus; Prometheus' own library reads them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relay_agent.monitor import prometheus
from relay_agent.monitor.prometheus import MAX_CONNECTIONS, MetricsServer, as_text
from relay_core.agent_api.usage import AllocatorUsage, GpuShare, GpuUsage, NodeUsage, ProcessUsage
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port

GPU = GpuUsage('H200 "SXM"', 0.5, 2**30, 2**31)
PROCESSES = (
    ProcessUsage(5678, 1.0, 2**29, AllocatorUsage(2**20, 2**22, 2**21, 2, 1), (GpuShare(0, 2**23),)),
    ProcessUsage(5679, 0.5, 2**28),
)
USAGE = NodeUsage(100.0, 2, 4, 2**30, 2**31, (GPU,), PROCESSES)
TEXT = as_text(USAGE, "node-0", {5678: 0, 5679: None})


def test_prometheus_reads_it() -> None:
    """Names, labels and values are those of the sample; each name occurs once with its type."""
    found = {
        (sample.name, tuple(sorted((key, value) for key, value in sample.labels.items() if key != "host_name"))): value
        for family in text_string_to_metric_families(TEXT)
        for sample in family.samples
        for value in [sample.value]
    }
    gpu = (("hw_id", "0"), ("hw_name", 'H200 "SXM"'))
    assert {
        ("system_cpu_utilization_ratio", ()): 0.5,
        ("system_cpu_logical_count", ()): 4,
        ("system_memory_usage_bytes", (("system_memory_state", "used"),)): 2**30,
        ("system_memory_limit_bytes", ()): 2**31,
        ("process_cpu_utilization_ratio", (("port", "5678"), ("rank", "0"))): 0.25,
        ("process_memory_usage_bytes", (("port", "5678"), ("rank", "0"))): 2**29,
        ("process_gpu_memory_usage_bytes", (("hw_id", "0"), ("port", "5678"), ("rank", "0"))): 2**23,
        ("torch_cuda_memory_allocated_bytes", (("port", "5678"), ("rank", "0"))): 2**20,
        ("torch_cuda_memory_reserved_bytes", (("port", "5678"), ("rank", "0"))): 2**22,
        ("torch_cuda_memory_peak_bytes", (("port", "5678"), ("rank", "0"))): 2**21,
        ("torch_cuda_ooms_total", (("port", "5678"), ("rank", "0"))): 2,
        ("torch_cuda_retries_total", (("port", "5678"), ("rank", "0"))): 1,
        ("process_cpu_utilization_ratio", (("port", "5679"),)): 0.125,
        ("process_memory_usage_bytes", (("port", "5679"),)): 2**28,
        ("hw_gpu_utilization_ratio", gpu): 0.5,
        ("hw_gpu_memory_usage_bytes", gpu): 2**30,
        ("hw_gpu_memory_limit_bytes", gpu): 2**31,
    } == found
    assert 1 == TEXT.count("# TYPE process_cpu_utilization_ratio gauge\n")
    assert 1 == TEXT.count("# TYPE torch_cuda_ooms_total counter\n")


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[int]:
    server, port = MetricsServer(), free_port()
    await server.start("127.0.0.1", port)
    try:
        server.show(TEXT)
        yield port
    finally:
        server.close()


async def response(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), DEADLINE)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("line", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1", b"HTTP/1.1 200 OK", TEXT.encode()),
        (b"HEAD /metrics HTTP/1.1", b"HTTP/1.1 200 OK", b""),
        (b"GET / HTTP/1.1", b"HTTP/1.1 404 Not Found", b"see /metrics\n"),
        (b"POST /metrics HTTP/1.1", b"HTTP/1.1 405 Method Not Allowed", b"use GET\n"),
        (b"nonsense", b"HTTP/1.1 404 Not Found", b"see /metrics\n"),
    ],
)
async def test_responses(line: bytes, status: bytes, body: bytes) -> None:
    """The sample is at /metrics only, and can only be read."""
    async with served() as port:
        head, _, found = (await response(port, line + b"\r\nHost: node-0\r\n\r\n")).partition(b"\r\n\r\n")
        assert (status, body) == (head.split(b"\r\n")[0], found)


async def test_foreign_host() -> None:
    """A web page whose host name was changed to resolve to this machine reads no metrics."""
    async with served() as port:
        found = await response(port, b"GET /metrics HTTP/1.1\r\nAccept: */*\r\nhost: evil.example:9464\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 403 ")
        assert TEXT.encode() not in found


async def test_endless_request() -> None:
    """A request without an end is dropped once it is too long; the next one is answered."""
    async with served() as port:
        with contextlib.suppress(ConnectionError):
            assert b"" == await response(port, b"GET /" + b"a" * 100_000)
        assert (await response(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(TEXT.encode())


async def test_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection beyond the limit replaces the oldest, which has not sent a request, and is answered."""
    monkeypatch.setattr(prometheus, "REQUEST_TIMEOUT", 10 * DEADLINE)
    async with served() as port, contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(MAX_CONNECTIONS + 1):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            readers.append(reader)
        with contextlib.suppress(ConnectionError):
            assert b"" == await asyncio.wait_for(readers[0].read(), DEADLINE)
        assert (await response(port, b"GET /metrics HTTP/1.1\r\n\r\n")).endswith(TEXT.encode())

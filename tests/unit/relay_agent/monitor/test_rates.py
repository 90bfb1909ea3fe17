"""Facts about usage between two readings."""

from relay_agent.monitor.procfs import Counters
from relay_agent.monitor.rates import usage_between
from relay_core.agent_api.resources.usage import AllocatorUsage, GpuUsage, NodeUsage, ProcessUsage

BEFORE = Counters(100.0, 10.0, 50.0, 4, 1, 8, {44: (5.0, 100), 45: (1.0, 100), 46: (1.0, 100)})
AFTER = Counters(102.0, 12.0, 55.0, 4, 2, 8, {44: (8.0, 200), 45: (0.5, 100), 47: (1.0, 100)})
PORTS = {45: 5678, 44: 5679, 47: 5680}


def test_usage() -> None:
    """Processor time is divided by the time passed, memory is the latest, and only processes of both are included."""
    gpu, allocator = GpuUsage("H200", 0.5, 1, 2), AllocatorUsage(6, 8, 7, 2, 1)
    expected = NodeUsage(
        102.0, 2.5, 4, 2, 8, (gpu,), (ProcessUsage(5678, 0.0, 100), ProcessUsage(5679, 1.5, 200, allocator))
    )  # process 45 has another one's id: its time has decreased
    assert expected == usage_between(BEFORE, AFTER, PORTS, [gpu], {5679: allocator, 5680: allocator})


def test_no_time_has_passed() -> None:
    """Without elapsed time, the usage is unknown."""
    assert usage_between(BEFORE, BEFORE, PORTS) is None

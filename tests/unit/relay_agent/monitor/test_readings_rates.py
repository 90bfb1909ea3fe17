"""Facts about usage between two readings."""

from relay_agent.monitor.readings import AllocatorReading, Counters, HeldMemory, usage_between
from relay_core.agent_api.usage import AllocatorUsage, GpuShare, GpuUsage, NodeUsage, ProcessUsage

BEFORE = Counters(100.0, 10.0, 50.0, 4, 1, 8, {44: (5.0, 100), 45: (1.0, 100), 46: (1.0, 100)})
AFTER = Counters(102.0, 12.0, 55.0, 4, 2, 8, {44: (8.0, 200), 45: (0.5, 100), 47: (1.0, 100)})
PORTS = {45: 5678, 44: 5679, 47: 5680}


def test_usage() -> None:
    """Processor time is divided by the time passed, memory is the latest, and only processes of both are included."""
    gpu, allocator = GpuUsage("H200", 0.5, 1, 2), AllocatorReading(AllocatorUsage(6, 8, 7, 2, 1))
    expected = NodeUsage(
        102.0, 2.5, 4, 2, 8, (gpu,), (ProcessUsage(5678, 0.0, 100), ProcessUsage(5679, 1.5, 200, allocator.usage))
    )  # process 45 has another one's id: its time has decreased
    assert expected == usage_between(BEFORE, AFTER, PORTS, [gpu], {5679: allocator, 5680: allocator})


def shares_of(allocator: AllocatorReading | None, *, has_host_pids: bool) -> tuple[GpuShare, ...]:
    """Return what process 44 uses of two GPUs: the driver knows 500 bytes of a process 44 on the second one."""
    gpus = [GpuUsage("H200", 0, 1, 2, "GPU-0"), GpuUsage("H200", 0, 1, 2, "GPU-1", ((7, 900), (44, 500)))]
    allocators = {} if allocator is None else {5679: allocator}
    usage = usage_between(BEFORE, AFTER, PORTS, gpus, allocators, has_host_pids=has_host_pids)
    assert usage is not None
    return usage.processes[-1].gpus


def on(*held: HeldMemory) -> AllocatorReading:
    return AllocatorReading(AllocatorUsage(6, 8, 7, 2, 1), held)


def test_gpus_of_a_process() -> None:
    """The driver counts the memory, or else torch's allocator.

    In a container, where the driver may report the ids of other processes, torch must hold memory on the same GPU, and
    no more than the driver has counted.
    """
    driver, torch = GpuShare(1, 500), GpuShare(1, 800, is_reserved=True)
    first = GpuShare(0, 300, is_reserved=True)
    assert (driver,) == shares_of(None, has_host_pids=True)
    assert () == shares_of(None, has_host_pids=False)
    assert (driver,) == shares_of(on(HeldMemory("GPU-1", 400)), has_host_pids=False)
    assert (torch,) == shares_of(on(HeldMemory("GPU-1", 800)), has_host_pids=False)
    assert (first,) == shares_of(on(HeldMemory("GPU-0", 300)), has_host_pids=False)
    assert (first, driver) == shares_of(on(HeldMemory("GPU-0", 300), HeldMemory("", 9)), has_host_pids=True)


def test_no_time_has_passed() -> None:
    """Without elapsed time, the usage is unknown."""
    assert usage_between(BEFORE, BEFORE, PORTS) is None

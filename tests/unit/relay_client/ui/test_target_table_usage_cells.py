"""Facts about the cells that show what a process and its node use."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.ui.target_table import usage_cells
from relay_core.agent_api.usage import GpuShare, GpuUsage, NodeUsage, ProcessUsage

PORT = 5678
KIB, MIB, GIB, TIB = (2 ** (10 * power) for power in (1, 2, 3, 4))


def usage(cpu: float = 0.0, memory: int = 0, gpus: tuple[GpuUsage, ...] = ()) -> NodeUsage:
    return NodeUsage(1000.0, 1.0, 8, GIB, 4 * GIB, gpus, (ProcessUsage(PORT, cpu, memory),))


@pytest.mark.parametrize(
    ("cpu", "cell"),
    [(0.0, " 0.0"), (0.049, " 0.0"), (1.24, " 1.2"), (9.96, "10.0"), (99.94, "99.9"), (99.96, " 100"), (5e9, " 999")],
)
def test_processors(cpu: float, cell: str) -> None:
    """One decimal up to 100 processors."""
    assert cell == usage_cells(usage(cpu=cpu), PORT)[0]


@pytest.mark.parametrize(
    ("memory", "cell"),
    [
        (0, "  0B"),
        (999, "999B"),
        (1000, "1.0K"),
        (98 * MIB, " 98M"),
        (999 * MIB, "999M"),
        (1000 * MIB, "1.0G"),
        (int(3.14 * GIB), "3.1G"),
        (int(9.96 * GIB), " 10G"),
        (31 * GIB, " 31G"),
        (int(1.5 * TIB), "1.5T"),
    ],
)
def test_memory(memory: int, cell: str) -> None:
    """Two or three digits, and the unit as `top` and `free -h` write it."""
    assert cell == usage_cells(usage(memory=memory), PORT)[1]


def test_gpus_of_a_node() -> None:
    """The average of how busy they are, and the memory of all; every row of the node has them."""
    node = usage(gpus=(GpuUsage("a", 1.0, 30 * GIB, 80 * GIB), GpuUsage("a", 0.5, 10 * GIB, 80 * GIB)))
    assert " 75%  40G" == usage_cells(node, PORT)[3]
    assert ("", "", "", " 75%  40G") == usage_cells(node) == usage_cells(node, PORT + 1)


@pytest.mark.parametrize(
    ("shares", "cell"),
    [((GpuShare(3, 31 * GIB),), "3  31G"), ((GpuShare(0, GIB), GpuShare(1, GIB), GpuShare(3, GIB)), "0-1,3 3.0G")],
)
def test_gpus_of_a_process(shares: tuple[GpuShare, ...], cell: str) -> None:
    """Their numbers, and the memory that the process uses on all of them."""
    (process,) = usage().processes
    assert cell == usage_cells(replace(usage(), processes=(replace(process, gpus=shares),)), PORT)[2]


def test_unknown_numbers() -> None:
    """Without a monitor, and for a process without a sample, the cells are empty."""
    assert ("",) * 4 == usage_cells(None, PORT) == usage_cells(usage(), PORT + 1) == usage_cells(usage())


@given(
    st.floats(0, 1e12),
    st.integers(0, 2**63),
    st.builds(GpuUsage, st.just("a"), st.floats(0, 1e9), st.integers(0, 2**63), st.just(0)),
)
def test_any_numbers_have_the_same_width(cpu: float, memory: int, gpu: GpuUsage) -> None:
    """A table whose numbers change does not move, whatever an agent announces."""
    assert [4, 4, 0, 9] == [len(cell) for cell in usage_cells(usage(cpu, memory, (gpu,)), PORT)]

"""Facts about the monitor's CSV file."""

import csv
from pathlib import Path

from relay_agent.monitor.files import COLUMNS, append_usage
from relay_core.agent_api.usage import AllocatorUsage, GpuShare, GpuUsage, NodeUsage, ProcessUsage

USAGE = NodeUsage(
    100.04,
    1.23456,
    4,
    5,
    6,
    (GpuUsage('H200 "NVL", 1', 0.5, 7, 8),),
    (
        ProcessUsage(5678, 1, 9, AllocatorUsage(6, 8, 7, 2, 1), (GpuShare(0, 10), GpuShare(3, 20, is_reserved=True))),
        ProcessUsage(6000, 0, 9, None, (GpuShare(1, 30),)),
        ProcessUsage(6001, 0, 9),
    ),
)


def test_lines(tmp_path: Path) -> None:
    """One heading, then one line for the node, each process and each GPU of each sample."""
    path = tmp_path / "outputs" / "monitor.csv"
    for _ in range(2):
        append_usage(path, "node-0", USAGE, {5678: 3, 6000: None, 6001: None})
    with path.open(newline="") as file:
        heading, *lines = csv.reader(file)
    assert list(COLUMNS) == heading
    none, three = [""] * 5, [""] * 3
    expected = [
        ["100.0", "node-0", "node", "", "", "1.235", "5", "6", "", *none, *three],
        ["100.0", "node-0", "process", "3", "5678", "1.000", "9", "", "", "6", "8", "7", "2", "1", "0 3", "30", "true"],
        ["100.0", "node-0", "process", "", "6000", "0.000", "9", "", "", *none, "1", "30", "false"],
        ["100.0", "node-0", "process", "", "6001", "0.000", "9", "", "", *none, *three],
        ["100.0", "node-0", 'gpu 0 (H200 "NVL", 1)', "", "", "", "7", "8", "0.500", *none, *three],
    ]
    assert [*expected, *expected] == lines

"""Facts about the counters of Linux."""

import os
from pathlib import Path

import pytest

from relay_agent.monitor.readings import has_host_pids, read_counters

TICKS = os.sysconf("SC_CLK_TCK")
NAME = "(a ) b (c)"
"""The name of a program may contain any characters."""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A `/proc` as Linux shows it, of a machine with two processors and one process."""
    proc = tmp_path / "proc"
    (proc / "44").mkdir(parents=True)
    (proc / "stat").write_text("cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 1 1\ncpu1 1 1\nintr 1 2\n")
    (proc / "meminfo").write_text("MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\nHugePages_Total: 0\n")
    (proc / "44" / "stat").write_text(f"44 {NAME} S 1 44 44 0 -1 4194560 9 8 7 6 250 50 3 2 20 0 1 0 5 1 2\n")
    (proc / "44" / "statm").write_text("900 300 100 1 0 200 0\n")
    return proc


def test_process_ids_of_the_host(tmp_path: Path) -> None:
    """They are known to be those of the host only in Linux's first namespace."""
    for number, target in enumerate(["pid:[4026531836]", "pid:[4026532201]"]):
        (tmp_path / str(number)).symlink_to(target)
    assert [True, False, False] == [has_host_pids(tmp_path / name) for name in ("0", "1", "absent")]


def test_counters(proc: Path, tmp_path: Path) -> None:
    """Busy time is all but idle and iowait, without the parts that are contained in others."""
    found = read_counters([44, 45], proc, tmp_path / "absent")
    assert (100 + 20 + 30 + 6 + 7 + 8) / TICKS == found.cpu
    assert (2, 3072 * 1024, 4096 * 1024) == (found.cores, found.memory, found.total)
    assert {44: (300 / TICKS, 300 * os.sysconf("SC_PAGE_SIZE"))} == found.processes


@pytest.mark.parametrize(
    ("limit", "expected"), [("1000000", (700_000, 1_000_000)), ("max", (3145728, 4194304)), ("9e9", (3145728, 4194304))]
)
def test_the_limit_of_a_container(proc: Path, tmp_path: Path, limit: str, expected: tuple[int, int]) -> None:
    """Of a container with less memory than the node, its own limit and usage are returned, without cached files."""
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("800000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    found = read_counters([], proc, tmp_path)
    assert expected == (found.memory, found.total)


def test_this_machine() -> None:
    """The real `/proc` is read: this process has used processor time and memory."""
    found = read_counters([os.getpid()])
    spent, memory = found.processes[os.getpid()]
    assert spent > 0
    assert 0 < memory < found.total
    assert found.cores >= 1


def test_a_system_without_counters(tmp_path: Path) -> None:
    """The monitor reports it."""
    with pytest.raises(OSError, match="stat"):
        read_counters([], tmp_path)

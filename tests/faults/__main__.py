"""`python -m tests.faults` (`make faults`): prints which faults and attacks were tried, and what happened.

First, a job runs with each of `tests.support.jobs.faults`, alone and under `relay-agent run`. Then agents put hostile
texts into every field, and a table shows how many of them came out at each sink, and as what. Then the tests run in
which a program has no descriptors left, another user of the machine tries to get something, or an agent announces too
much; each is shown with the fact that it verifies.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.jobs.faults import FAULTS, MEMORY, Fault, alone_and_observed, can_mount
from tests.support.machine.programs import Finished
from tests.support.network.relay import LocalRelay, local_relay
from tests.support.systems.hostile_fleet import TEXTS, Shown, commands, event_files, hostile_fleet, mcp, page

ATTACKS = (
    "tests/e2e/test_exhaustion.py",
    "tests/e2e/test_tensorboard_users.py",
    "tests/integration/relay_server/test_key_updates.py",
    "tests/integration/test_announcement_floods.py",
    "tests/integration/test_other_users.py",
    "tests/integration/test_other_users_of_children.py",
    "tests/unit/relay_agent/debuggee/test_debugger.py",
    "tests/unit/relay_client/control/test_server_peer_user.py",
)
SELECTION = "(descriptors or user or stranger or announcement) and not job_without"


async def run_faults() -> bool:
    """Run the jobs; return whether none was harmed."""
    print(f"{'the job lacks':54} {'status':9} {'output':9} logged")
    harmless = True
    with tempfile.TemporaryDirectory() as name:
        async with local_relay(Path(name) / "tls") as relay:
            for number, fault in enumerate((*FAULTS, *MEMORY)):
                directory = Path(name) / str(number)
                directory.mkdir()
                harmless = await _run_fault(fault, relay, directory) and harmless
    return harmless


async def _run_fault(fault: Fault, relay: LocalRelay, directory: Path) -> bool:
    if fault.needs_disk and not can_mount():
        print(f"{fault.name:54} not run: this user cannot mount a disk")
        return True
    alone, observed = await alone_and_observed(fault, relay, directory)
    is_same = (alone.status, alone.stdout) == (observed.status, observed.stdout)
    output = "the same" if alone.stdout == observed.stdout else "OTHER"
    print(f"{fault.name:54} {_statuses(alone, observed):9} {output:9} {_last_line(observed)}", flush=True)
    return is_same


def _statuses(alone: Finished, observed: Finished) -> str:
    return f"{observed.status}" if alone.status == observed.status else f"{observed.status} NOT {alone.status}"


def _last_line(observed: Finished) -> str:
    lines = [line for line in observed.stderr.splitlines() if "continuing without" in line or "cannot" in line]
    if observed.status < 0:  # ended by a signal
        lines = observed.stderr.splitlines()
    return lines[-1].removeprefix("relay-agent: ") if lines else "-"


async def run_texts() -> bool:
    """Print how many texts of each field each sink has shown, and as what; return whether all of them as data."""
    shown: dict[str, Shown] = {}
    with tempfile.TemporaryDirectory() as name:
        async with hostile_fleet(Path(name)) as fleet:
            for take in (page, mcp, event_files, commands):  # the last one ends the ranks
                shown |= await take(fleet)
            fields = sorted({*fleet.nodes[0].filled, "path"})
    print(f"\n{len(TEXTS)} texts, by field: how many each sink has shown, and as what")
    print(f"{'':18}", *(f"{sink:10}" for sink in shown))
    for field in fields:
        print(f"{field:18}", *(f"{_cell(each, field):10}" for each in shown.values()))
    for sink, each in shown.items():
        for field, harm in each.harm:
            print(f"{sink}: {field} came out as {harm!r}")
    return not any(each.harm for each in shown.values())


def _cell(shown: Shown, field: str) -> str:
    count = len(shown.numbers(field))
    is_harmful = field in {name for name, _ in shown.harm}
    return f"{count} {'HARM' if is_harmful else 'data'}" if count or is_harmful else "-"


class Facts:
    """A pytest plugin that prints the fact that each test verifies, and its outcome."""

    def __init__(self) -> None:
        self._facts: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self._facts[item.nodeid] = inspect.getdoc(getattr(item, "function", None)) or ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or (not report.passed and report.when == "setup"):
            name = report.nodeid.rpartition("::")[2]
            print(f"{report.outcome:8} {name}: {self._facts[report.nodeid].partition(chr(10))[0]}", flush=True)


def main() -> int:
    """Run everything; return 1 if a job was harmed or an attack succeeded."""
    harmless = asyncio.run(run_faults())
    harmless = asyncio.run(run_texts()) and harmless
    print("\nattacks by another user or by an agent, and programs without descriptors", flush=True)
    imported = "ignore:Module already imported so cannot be rewritten"  # anyio, by the client of the MCP server
    options = ("-o", "addopts=", "-p", "no:terminal", "-p", "no:randomly", "-W", imported, "-k", SELECTION)
    failed = pytest.main([*options, *ATTACKS], plugins=[Facts()])
    return 0 if harmless and not failed else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs the tests, and repeats failed tests once, alone. The arguments are those of pytest.

More than a thousand tests start real processes. If each of them failed once in ten thousand runs because a machine was
slow, every tenth run would fail although nothing is wrong. A fault of the code fails twice: the second run has the same
fixtures and checks as the first, and hypothesis tries the same examples in each run.

    first run                          second run        exit status
    all passed                         none              0
    1 to 12 tests failed               all passed        0; build/repeated.txt and the last lines name these tests
    1 to 12 tests failed               a test failed     1
    more than 12 tests failed          none              1
    interrupted, or not every test ran none              pytest's

The second run is one process and starts after the first has ended, so nothing runs beside a test. Plugins that repeat a
test at once, beside the others, keep the load that made it fail, and report it as passed among thousands of lines.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

MAX_REPEATED = 12
"""Number of failed tests up to which a slow machine is a likely cause."""
REPORT = Path("build/repeated.txt")
"""The tests that needed a second run in the last `make test`, with their first errors; empty if there were none."""
XDIST_GROUP = re.compile(r"@[^\]]+$")
"""What pytest-xdist appends to the id of a test in an `xdist_group`, whose name may contain spaces. An `@` in the id
itself is in a parameter, so a bracket follows it."""


class Failures:
    """A plugin that collects the first error of each failed test, and makes `--last-failed` mean these tests."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        """First error by test id."""
        self.was_cut = False
        """True if pytest has stopped before the last test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the error of a failed phase."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = (crash.message if crash else str(report.longrepr)).strip().splitlines()
            self.errors.setdefault(XDIST_GROUP.sub("", report.nodeid), lines[0] if lines else "no message")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Store the failed tests under the ids that they have without pytest-xdist."""
        self.was_cut = bool(session.shouldfail or session.shouldstop)
        session.config.cache.set("cache/lastfailed", dict.fromkeys(self.errors, True))


def main(arguments: list[str]) -> int:
    """Run the tests, repeat those that fail, and return the exit status."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("", encoding="utf-8")
    failures = Failures()
    status = int(pytest.main(arguments, plugins=[failures]))
    if status != pytest.ExitCode.TESTS_FAILED or failures.was_cut or not failures.errors:
        return status
    if len(failures.errors) > MAX_REPEATED:
        print(f"{len(failures.errors)} tests failed, more than {MAX_REPEATED}: none is repeated")
        return status
    print(f"{len(failures.errors)} failed; repeating these tests alone", flush=True)
    alone = ["-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
    repeat = [sys.executable, "-m", "pytest", *arguments, *alone]
    status = subprocess.run(repeat, check=False).returncode
    verdict = "passed" if status == pytest.ExitCode.OK else "see above"
    lines = [f"{test}\n    {error}\n" for test, error in sorted(failures.errors.items())]
    REPORT.write_text("".join(lines), encoding="utf-8")
    print(f"\nneeded a second run ({verdict}), with the first error ({REPORT}):", *lines, sep="\n", end="")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

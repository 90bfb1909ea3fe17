#!/usr/bin/env python3
"""Runs tests several times on a busy machine, and prints how often each failed: `.ci/flaky.py RUNS [pytest arguments]`.

Two processes compute all the time, as on a machine that somebody else uses. Nothing is repeated within a run. The
output of run N is in build/flaky/N.txt. The exit status is 0 if no test failed.

A test that fails in one run of several is a defect: of the program, if the output shows that it did something wrong or
lost something, and otherwise of the test, which did not wait for the state that it asserts.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

OUTPUT = Path("build/flaky")
CACHE = OUTPUT / "cache"
FAILED = CACHE / "v/cache/lastfailed"
"""Where pytest stores the ids of the tests that failed."""
COMPUTE = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"
"""Computes until the process that started it has ended, whatever ended it."""
PROCESSES = 2


@contextlib.contextmanager
def busy_machine() -> Iterator[None]:
    """Keep two cores computing within the block."""
    command = [sys.executable, "-c", COMPUTE, str(os.getpid())]
    busy = [subprocess.Popen(command) for _ in range(PROCESSES)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def failed_tests(number: int, arguments: list[str]) -> list[str]:
    """Run the tests once; return the ids of those that failed."""
    command = [sys.executable, "-m", "pytest", "--cache-clear", "-o", f"cache_dir={CACHE}", *arguments]
    with (OUTPUT / f"{number}.txt").open("w", encoding="utf-8") as output:
        status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if status not in {0, 1}:
        sys.exit(f"pytest ended with status {status}: see {output.name}")
    return list(json.loads(FAILED.read_text(encoding="utf-8"))) if status else []


def main(runs: int, arguments: list[str]) -> int:
    """Run the tests `runs` times, print how often each failed, and return the exit status."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    failed: Counter[str] = Counter()
    with busy_machine():
        for number in range(1, runs + 1):
            found = failed_tests(number, arguments)
            print(f"run {number} of {runs}: {len(found)} failed", flush=True)
            failed.update(found)
    for test, count in failed.most_common():
        print(f"{count} of {runs}  {test}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))

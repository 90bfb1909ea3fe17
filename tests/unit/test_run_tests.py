"""Facts about `.ci/run_tests.py` and `.ci/flaky.py`, which run pytest on small test files of their own here."""

import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.support.machine.deadline import DEADLINE

SCRIPTS = Path(__file__).parents[2] / ".ci"
FAILS_ONCE = """
import pathlib
import pytest

@pytest.mark.xdist_group("files, streams and limits")
@pytest.mark.parametrize("address", ["a@b"])
def test_fails_once(address):
    marker = pathlib.Path("was_here")
    was_here = marker.exists()
    marker.touch()
    assert was_here, "a slow machine\\nof which this line is a detail"
"""
FAILS_ALWAYS = "def test_fails_always():\n    assert 1 == 2\n"
PASSES = "def test_passes():\n    pass\n"
COUNTS = """
import pathlib

def test_counted():
    with pathlib.Path("runs").open("a") as runs:
        runs.write("x")
    assert False, "counted"
"""
LEAKS = """
import pathlib
import pytest

@pytest.fixture(autouse=True)
def _check():
    yield
    assert not pathlib.Path("left").exists(), "left behind"

def test_leaks():
    pathlib.Path("left").touch()
"""


def run_script(name: str, folder: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Write the test files, and run a script on them."""
    for module, source in files.items():
        (folder / f"test_{module}.py").write_text(source)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-p xdist.plugin'\n")
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # halves the time
    command = [sys.executable, str(SCRIPTS / name), *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)


def report(folder: Path) -> str:
    return (folder / "build/repeated.txt").read_text()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_failed_once(tmp_path: Path, workers: str) -> None:
    """A test that fails once is repeated alone; the run is green, and its end and the report name the first error."""
    found = run_script("run_tests.py", tmp_path, "-n", workers, "--dist", "loadgroup", once=FAILS_ONCE, passes=PASSES)
    assert 0 == found.returncode, found.stdout
    assert "test_once.py::test_fails_once[a@b]\n    AssertionError: a slow machine\n" == report(tmp_path)
    assert found.stdout.endswith(report(tmp_path))
    assert "1 passed" in found.stdout.rpartition("repeating these tests alone")[2]


def test_failed_twice(tmp_path: Path) -> None:
    """A test that fails again makes the run red, also if another one passes the second time."""
    found = run_script("run_tests.py", tmp_path, "-n", "2", once=FAILS_ONCE, always=FAILS_ALWAYS, passes=PASSES)
    assert 1 == found.returncode
    assert ["test_always.py::test_fails_always", "test_once.py::test_fails_once[a@b]"] == [
        line for line in report(tmp_path).splitlines() if not line.startswith(" ")
    ]


def test_fixtures_check_again(tmp_path: Path) -> None:
    """What only a fixture's check finds after a test is repeated with that check, and fails twice."""
    found = run_script("run_tests.py", tmp_path, leaks=LEAKS)
    assert (1, 2) == (found.returncode, found.stdout.count("E       AssertionError: left behind"))


def test_thirteen_failures(tmp_path: Path) -> None:
    """More than twelve failed tests are not repeated."""
    twelve = {f"always{number}": FAILS_ALWAYS for number in range(12)}
    found = run_script("run_tests.py", tmp_path, counted=COUNTS, **twelve)
    assert (1, "x", "") == (found.returncode, (tmp_path / "runs").read_text(), report(tmp_path))
    assert "13 tests failed, more than 12: none is repeated" in found.stdout


def test_twelve_failures(tmp_path: Path) -> None:
    """Up to twelve failed tests are repeated, once."""
    eleven = {f"always{number}": FAILS_ALWAYS for number in range(11)}
    assert 1 == run_script("run_tests.py", tmp_path, counted=COUNTS, **eleven).returncode
    assert ("xx", 12) == ((tmp_path / "runs").read_text(), report(tmp_path).count("::"))


@pytest.mark.parametrize("arguments", [("-x",), ("-n", "2", "-x")], ids=" ".join)
def test_stopped_early(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A run that did not reach all tests is red, even if what failed would pass the second time."""
    found = run_script("run_tests.py", tmp_path, *arguments, once=FAILS_ONCE, passes=PASSES)
    assert found.returncode != 0
    assert "repeating" not in found.stdout


@pytest.mark.parametrize(("source", "status"), [("import nothing_of_this_name", 2), ("", 5)])
def test_other_statuses(tmp_path: Path, source: str, status: int) -> None:
    """A file that cannot be imported, or no test at all, keeps pytest's exit status."""
    assert status == run_script("run_tests.py", tmp_path, broken=source).returncode


def test_all_passed(tmp_path: Path) -> None:
    """Without a failure nothing is repeated, and the report of an earlier run is emptied."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build/repeated.txt").write_text("of yesterday")
    assert (0, "") == (run_script("run_tests.py", tmp_path, passes=PASSES).returncode, report(tmp_path))


def test_examples_of_property_tests() -> None:
    """Each run tries the same ones; the profile of `make fuzz` tries others, and keeps those that fail."""
    search = hypothesis.settings.get_profile("search")
    assert hypothesis.settings().derandomize
    assert not search.derandomize
    assert isinstance(search.database, DirectoryBasedExampleDatabase)


def test_flaky(tmp_path: Path) -> None:
    """`.ci/flaky.py` prints how often each test failed, and keeps the output of each run."""
    found = run_script("flaky.py", tmp_path, "2", once=FAILS_ONCE, always=FAILS_ALWAYS, passes=PASSES)
    assert 1 == found.returncode, found.stderr
    assert (
        "run 1 of 2: 2 failed\nrun 2 of 2: 1 failed\n"
        "2 of 2  test_always.py::test_fails_always\n1 of 2  test_once.py::test_fails_once[a@b]\n"
    ) == found.stdout
    assert "1 failed, 2 passed" in (tmp_path / "build/flaky/2.txt").read_text()

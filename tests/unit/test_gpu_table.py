"""Facts about `.ci/gpu.py` and `.ci/gpu_table.py` (`make gpu`), which need no GPU for them."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.machine.deadline import DEADLINE

SCRIPTS = Path(__file__).parents[2] / ".ci"
TESTS = '''
import pytest

def test_measured(record_property):
    """A step | takes
    little time.

    More.
    """
    record_property("figure", "0.6 ms")
    record_property("other", "not shown")

@pytest.mark.skip(reason="one GPU only")
def test_skipped():
    """Two GPUs work."""

@pytest.fixture
def broken():
    yield
    assert 1 == 2

@pytest.mark.parametrize("ranks", [4])
def test_left_behind(broken, ranks):
    """Nothing is left behind."""

def test_unreached():
    pass
'''
ROWS = [
    ["test", "fact", "result", "s", "figure"],
    ["ranks: measured", "A step ! takes little time.", "passed", "0.0", "0.6 ms"],
    ["ranks: skipped", "Two GPUs work.", "skipped", "", "one GPU only"],
    ["ranks: left_behind[4]", "Nothing is left behind.", "failed", "0.0", ""],
    ["ranks: unreached", "", "not run", "", ""],
]


def run_script(name: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": str(folder), **variables}
    command = [sys.executable, str(SCRIPTS / name), *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)


def cells(table: str) -> list[list[str]]:
    """Return the cells of a table."""
    lines = [line.replace(r"\|", "!") for line in table.splitlines()]
    assert 1 == len({len(line) for line in table.splitlines()}), "the columns have even widths"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "| --" not in line]


def test_table(tmp_path: Path) -> None:
    """Each selected test has a row, with its fact, result, duration and figure; the status is pytest's."""
    (tmp_path / "test_ranks.py").write_text(TESTS)
    found = run_script("gpu_table.py", tmp_path, "-x", "-p", "pytest_timeout", "test_ranks.py")
    assert 1 == found.returncode, found.stdout + found.stderr
    text = (tmp_path / "build/gpu.md").read_text()
    assert found.stdout.endswith(f"\n{text}\n")
    machine, _, table = text.partition("\n\n")
    assert machine.startswith("no GPU, driver none, ")
    assert ROWS == cells(re.sub(r"(?<=\| )\d+\.\d (?=\|)", "0.0 ", table))


def test_machine_without_gpu(tmp_path: Path) -> None:
    """`make gpu` runs nothing where nvidia-smi is missing or finds no GPU; the reason is one sentence, the status 0."""
    reasons = ["this machine has no driver of NVIDIA (nvidia-smi is missing)"]
    found = [run_script("gpu.py", tmp_path)]
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    reasons.append("nvidia-smi finds no GPU: No devices were found")
    found.append(run_script("gpu.py", tmp_path))
    expected = [(0, f"make gpu: no test was run, because {reason}\n", "") for reason in reasons]
    assert expected == [(each.returncode, each.stdout, each.stderr) for each in found]
    assert ["nvidia-smi"] == [path.name for path in tmp_path.iterdir()]


def test_requirements_that_cannot_be_installed(tmp_path: Path) -> None:
    """On a machine with a GPU, what the tests need comes from the folder of wheels alone, if it is there."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "build/gpu-wheels").mkdir(parents=True)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/torch.py").write_text("class cuda:\n    is_available = lambda: True\n")
    (tmp_path / "pyproject.toml").write_text("[build-system]\nrequires = ['hatchling']\n[project]\nname = 'a'\n")
    found = run_script("gpu.py", tmp_path, PYTHONPATH=str(tmp_path / "modules"))
    assert 1 == found.returncode
    assert "No matching distribution found for hatchling" in found.stderr
    assert "make gpu: what the tests need cannot be installed; without a network, run 'make gpu-wheels'" in found.stderr

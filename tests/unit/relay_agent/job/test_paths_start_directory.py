"""Facts about the directory that a program was started in, its script, and the time, as real programs see them."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from relay_agent.job.paths import start_time
from tests.support.jobs.processes import ROOT

PROGRAM = f"""\
import os, sys
sys.path.insert(0, {str(ROOT)!r})
HEAD
from relay_agent.job.paths import script_name, start_directory
os.chdir("/")
print(script_name() if "--script" in sys.argv else start_directory())
"""


def started(directory: Path, *command: str, head: str = "") -> str:
    """Return what a program prints that was started in `directory`."""
    (directory / "src").mkdir(exist_ok=True)
    (directory / "src" / "program.py").write_text(PROGRAM.replace("HEAD", head))
    done = subprocess.run([sys.executable, *command], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("path", ["src/program.py", "./src/program.py", "src/../src/program.py"])
def test_a_change_before_the_import_does_not_matter(tmp_path: Path, path: str) -> None:
    """The relative path of the script on the command line reveals the directory."""
    assert str(tmp_path) == started(tmp_path, "-u", path, "--flag", head="os.chdir('/')")


@pytest.mark.parametrize("command", [("-m", "src.program"), ("{}/src/program.py",)])
def test_other_programs_reveal_it_until_they_change_it(tmp_path: Path, command: tuple[str, ...]) -> None:
    """For modules and absolute paths it is the directory at the import of the package."""
    assert str(tmp_path) == started(tmp_path, *(part.format(tmp_path) for part in command))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("-u", "src/program.py", "other.py"), "program.py"),
        (("src/program.py", "-m", "other"), "program.py"),
        (("-m", "src.program"), "src.program"),
    ],
)
def test_the_name_of_the_script(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    """It has no directory; for a module, it is the name after -m."""
    assert name == started(tmp_path, *command, "--script")


def test_start_time():
    """It is the time at which the package was imported, on the clock of file times."""
    assert psutil.Process().create_time() - 1 <= start_time() <= time.time()  # create_time has ticks of 10 ms

"""Why a Python program of a run cannot register."""

import os
import sys
from pathlib import Path

import pytest

from relay_agent import inject
from relay_agent.inject.unregistered import PythonProcess, is_python, obstacle, python_processes

INJECT = str(Path(inject.__file__).parent)
SETTINGS = {"RELAY_DEBUG": "wait", "PYTHONPATH": f"{INJECT}:src"}


def process(*options: str, executable: str = "/opt/bin/python3.12", **environ: str) -> PythonProcess:
    return PythonProcess(1, executable, ["python", *options, "train.py"], SETTINGS | environ)


@pytest.mark.parametrize(
    "found",
    [process(), process("-u"), process(PYTHONPATH=f"src:{INJECT}"), process(executable="/usr/bin/python3")],
    ids=["usual", "options", "last entry", "version unknown"],
)
def test_a_program_with_the_settings_of_the_run_has_no_obstacle(found: PythonProcess):
    """Its own entries may precede that of relay-debug in PYTHONPATH."""
    assert "" == obstacle(found)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (process("-u", "-I"), "python -I ignores the settings of the run"),
        (process(executable="/usr/bin/python3.9"), "it runs Python 3.9"),
        (process()._replace(environ={"PYTHONPATH": INJECT}), "it was started without the environment of the run"),
        (process(PYTHONPATH="src"), "PYTHONPATH was replaced"),
        (process(PYTHONPATH=""), "PYTHONPATH was replaced"),
    ],
)
def test_each_obstacle_is_named_with_a_hint(found: PythonProcess, reason: str):
    """Options, an old version, a cleaned environment, and a replaced PYTHONPATH."""
    sentence, _, hint = obstacle(found).partition(". hint: ")
    assert sentence.startswith(reason)
    assert hint


def test_another_sitecustomize_in_front_is_named(tmp_path: Path):
    """Python imports the first one only."""
    (tmp_path / "sitecustomize.py").touch()
    assert f"so {tmp_path}/sitecustomize.py is imported" in obstacle(process(PYTHONPATH=f"{tmp_path}:{INJECT}"))


@pytest.mark.parametrize("name", ["python", "python3.13", "/opt/bin/python3-dbg", "python3.13d"])
def test_names_of_python(name: str):
    """With a version, and those of debug builds."""
    assert is_python(name)
    assert not is_python(f"{name}-config")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_a_running_process_is_described_as_it_was_started():
    """Its command line and its first environment."""
    [found] = [each for each in python_processes(os.getpid()) if each.pid == os.getpid()]
    assert sys.orig_argv == found.orig_argv
    assert found.environ["PATH"]

"""Why a Python program of a run cannot register."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relay_agent import inject
from relay_agent.inject._relay_debug_programs import is_python
from relay_agent.startup.unregistered import PythonProcess, obstacle, python_processes

INJECT = str(Path(inject.__file__).parent)
TITLE = """
import os, sys
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[45]), int(fields[48])  # from the first argument to the last variable
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(start)
    memory.write(b"worker: idle".ljust(end - start, b"\\0"))
from relay_agent.startup.unregistered import python_processes
print([*python_processes(os.getpid())])
"""
WATCHED = """
import os, psutil, sys
from relay_agent.startup.unregistered import watch_this_process
reader, writer = os.pipe()
watch_this_process()
os.close(writer)
os.set_blocking(reader, False)
shown = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
print(os.read(reader, 1), len([each for each in shown if sys.argv[1] in each]))
"""
SETTINGS = {"RELAY_DEBUG": "wait", "PYTHONPATH": f"{INJECT}:src"}


def output(code: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout


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
        (process()._replace(orig_argv=["python", "-u", "-"]), "a program from stdin is not debugged"),
        (process("-c", "import train"), "code given with -c is not debugged"),
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


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_a_process_that_shows_a_title_is_omitted():
    """The title, as setproctitle writes it, overwrites the command line and the environment."""
    assert "[]\n" == output(TITLE)


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux")
def test_the_watching_process_has_no_descriptors_and_no_arguments_of_the_job(tmp_path: Path):
    """When the job begins, nothing can wait for the process, such as the reader of a pipe, or take it for the job."""
    assert "b'' 1\n" == output(WATCHED, str(tmp_path))

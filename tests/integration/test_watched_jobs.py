"""Facts about watches in jobs, under each supported Python version."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine.deadline import DEADLINE

pytestmark = pytest.mark.job
ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
PRELUDE = """\
import asyncio, os, sys, threading, time
from pathlib import Path
from relay_agent.trigger.table import watches
from tests.support.jobs.watching import Client

client = Client(Path(__file__), watches)
is_over = False


def observe(*names):
    global is_over
    for name in names:
        client.ask(name, name)
    found = {name: [] for name in names}
    while not all(len(values) >= 3 for values in found.values()):
        for name in names:
            found[name] += client.texts(name, name)
    is_over = True
    for name, values in found.items():
        client.ask(name, is_last=True)
        print(name, all(int(b) == int(a) + 1 for a, b in zip(values, values[1:])))


def start(*names):
    thread = threading.Thread(target=observe, args=names)
    thread.start()
    return thread
"""
FUNCTION = """
def train(step):
    return step + 1  # step

def numbers():
    number = 0
    while True:
        number += 1
        yield number  # number

def main():
    thread, count, generated = start("count", "step", "number"), 0, numbers()
    while not is_over:
        count = train(count)
        next(generated)
        time.sleep(0.01)  # count
    thread.join()

code = train.__code__
main()
print(train.__code__ is code, sys.gettrace())
"""
MODULE = """
thread, count = start("count"), 0
while not is_over:
    count += 1
    time.sleep(0.01)  # count
thread.join()
print(sys.gettrace())
"""
COROUTINE = """
async def main():
    thread, count = start("count"), 0
    while not is_over:
        count += 1
        await asyncio.sleep(0.01)  # count
    thread.join()

asyncio.run(main())
"""
INTERRUPTED = """
import signal

class Stop(Exception): ...

def stop(*_):
    raise Stop

def train(step):
    return step  # step

for number, kind in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Stop)):
    signal.signal(signal.SIGTERM, stop)
    client.ask("step", f"[os.kill(os.getpid(), {number:d}), time.sleep(60)]", id=kind.__name__)
    try:
        train(1)
    except kind:
        print("raised")
    print(client.texts("step", id=kind.__name__, is_last=True))
"""
EXIT = """
def train(step):
    return step  # step

client.ask("step", "step")
client.on_answer = lambda answer: print(answer.ended)
threading.Thread(target=client.ask, args=("step", "step"), kwargs={"wait": 10.0}, daemon=True).start()
while not watches._watches["step"].asking.locked():
    time.sleep(0.001)
sys.exit(0)
"""


def interpreter(version: str) -> str:
    """Return a Python of this version, or skip the test."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    found = subprocess.run([ROOT / ".ci" / "pythons"], capture_output=True, text=True, check=True).stdout.split()
    for python in found:
        shown = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
        if shown.startswith(f"Python {version}."):
            return python
    pytest.skip(f"Python {version} is missing here")


def output(version: str, program: Path) -> list[str]:
    """Return the lines that a program prints under a Python of this version."""
    done = subprocess.run(
        [interpreter(version), "-W", "ignore", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert "" == done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FUNCTION, ["count True", "step True", "number True", "True None"]),
        (MODULE, ["count True", "None"]),
        (COROUTINE, ["count True"]),
        (INTERRUPTED, ["raised", "[]", "raised", "[]"]),
        (EXIT, ["because the process exited"]),
    ],
    ids=["functions", "module", "coroutine", "signals", "exit"],
)
def test_job_that_is_running(tmp_path: Path, version: str, text: str, expected: list[str]) -> None:
    """Loops that are already running are watched, signals reach the job, and everything is as before in the end."""
    program = tmp_path / "train.py"
    program.write_text(PRELUDE + text)
    assert expected == output(version, program)

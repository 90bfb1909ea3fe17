"""Facts about watches in jobs, under each supported Python version."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relay_agent.trigger.replaced_code import NOT_WATCHED, TRACED
from relay_client.agents.requests import ask_ranks
from relay_client.agents.tunnels import Tunnels
from relay_core.agent_api.questions import Reply
from relay_core.agent_api.watch import Watch, Watched
from relay_core.hyco.address import Endpoint
from tests.support.jobs.running import ranks_launcher, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import HC, LocalRelay

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
LINES = """
def train(steps):
    for step in range(steps):  # for
        left = 3
        while left:  # while
            left -= 1
        value = max(  # call
            step,
            left)
    return [step for _ in "ab"]  # comprehension

marks = ("for", "while", "call", "comprehension")
for mark in marks:
    client.ask(mark)
train(2)
print([client.ask(mark).reached for mark in marks])
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


def output(version: str, program: Path, **variables: str) -> list[str]:
    """Return the lines that a program prints under a Python of this version."""
    done = subprocess.run(
        [interpreter(version), "-W", "ignore", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
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
        (LINES, ["[3, 8, 2, 1]"]),
        (EXIT, ["because the process exited"]),
    ],
    ids=["functions", "module", "coroutine", "signals", "lines", "exit"],
)
def test_job_that_is_running(tmp_path: Path, version: str, text: str, expected: list[str]) -> None:
    """Loops that are already running are watched, signals reach the job, and everything is as before in the end."""
    program = tmp_path / "train.py"
    program.write_text(PRELUDE + text)
    assert expected == output(version, program)


BESIDE = """
import debugpy

def train(step):
    return step + 1  # step

def observe_beside():
    global is_over
    for name in ("step", "count"):
        note = client.ask(name, name).note
        print(name, note or len(client.ask(name, name, wait=10.0).hits) > 0)
        client.ask(name, is_last=True)
    is_over = True

debugpy.listen(("127.0.0.1", 0))
thread, count = threading.Thread(target=observe_beside), 0
thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
thread.start()
code = train.__code__
while not is_over:
    count = train(count)
    time.sleep(0.01)  # count
thread.join()
print(train.__code__ is code)
os._exit(sys.stdout.flush() or 0)
"""


def test_beside_a_debugger(tmp_path: Path) -> None:
    """A watch works beside debugpy; up to Python 3.11, calls that are already running stay with the debugger."""
    program = tmp_path / "train.py"
    program.write_text(PRELUDE + BESIDE)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    running = NOT_WATCHED.format(TRACED.format("a debugger")) if sys.version_info < (3, 12) else True
    assert ["step True", f"count {running}", "True"] == output(version, program, PYDEVD_DISABLE_FILE_VALIDATION="1")


RANKS = """\
import os
import time

def train(step):
    time.sleep(0.01)
    return step

step = 0
while True:
    step += 1
    if os.environ["RELAY_RANK"] == "0":
        train(step)
    time.sleep(0.01)
"""


async def test_ranks_of_a_node(relay: LocalRelay, tmp_path: Path) -> None:
    """The hits of one rank do not wait for another one that does not reach the line; the job's log names the user."""
    script = tmp_path / "train.py"
    script.write_text(RANKS)
    async with (
        running_job(relay, script, "--debug-ranks", "none", launcher=ranks_launcher(2)) as job,
        Tunnels(Endpoint("localhost", relay.server.port, HC), relay.sender, relay.tls) as client,
    ):
        await asyncio.wait_for(
            client.search.wait_for(lambda: len(client.reachable_targets()) == 2 or None, print), DEADLINE
        )
        after: dict[str, int] = {}
        values: list[int] = []
        places: set[str] = set()
        slowest = 0.0
        while len(values) < 5 or len(places) < 2:
            began = asyncio.get_running_loop().time()
            question = Watch(id="1", file="train.py", line=6, expression="step", after=after)
            replies: list[Reply] = await ask_ranks(client, question)
            slowest = max(slowest, asyncio.get_running_loop().time() - began)
            for reply in replies:
                assert "" == reply.error
                watched = reply.read(Watched)
                places.add(f"{reply.rank}: {watched.place}")
                after[str(reply.port)] = watched.hits[-1].number if watched.hits else after.get(str(reply.port), 0)
                values += [int(hit.text) for hit in watched.hits]
        assert values == [*range(values[0], values[0] + len(values))]
        assert {"0: train train.py:6", "1: train train.py:6"} == places
        assert slowest < question.wait
        assert "is watching train.py:6" in await job.line("watching")


def test_program_that_prints_the_cost(tmp_path: Path) -> None:
    """The program in the document prints what a watched line costs."""
    text = (ROOT / "docs" / "concepts" / "watch.md").read_text(encoding="utf-8")
    program = tmp_path / "hot.py"
    program.write_text(text.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    assert re.fullmatch(r"[\d.]+ us for each iteration, with the watch [\d.]+ us more\n", done.stdout.split("\n", 1)[1])

"""A job that forks all the time, as the workers of a data loader do, beside everything that a user may ask of it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from relay_client.dap import DapClient
from tests.support.jobs.running import access, running_client, running_job, until_registered
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, run
from tests.support.network.relay import LocalRelay

__all__ = ["Forks", "forks_beside_requests"]

SCRIPT = """\
import json, os, subprocess, sys, time, warnings
from pathlib import Path

import model

warnings.simplefilter("ignore")  # from Python 3.12 on, a fork of a process with threads is a warning
directory, deadline = Path(__file__).parent, float(sys.argv[1])
# What debugpy and relay_agent import as well:
NAMES = (
    "queue ctypes inspect tokenize dis xmlrpc.client socketserver http.client pdb code cmd bdb urllib.parse html "
    "json.decoder tempfile random ast symtable reprlib copy pprint"
).split()
PACE = 0.004
forks = hung = 0
longest = 0.0
running = {}

def child(number):
    __import__(NAMES[number % len(NAMES)])
    print(end="", flush=True)
    os._exit(0)

def step(number):
    return number * 2

def end_children():
    for pid in list(running):
        if os.waitpid(pid, os.WNOHANG)[0]:
            del running[pid]

while not (directory / "stop").exists():
    forks += 1
    step(forks)
    if forks % 10 == 0:
        subprocess.run(["true"], preexec_fn=os.setsid)
        continue
    started = time.perf_counter()
    pid = os.fork()
    if not pid:
        child(forks)
    longest = max(longest, time.perf_counter() - started)
    running[pid] = forks
    end_children()
    (directory / "forks").write_text(str(forks))
    time.sleep(PACE)
until = time.monotonic() + deadline
while running and time.monotonic() < until:
    end_children()
    time.sleep(PACE)
report = {"forks": forks, "hung": sorted(NAMES[each % len(NAMES)] for each in running.values()), "longest": longest}
print(json.dumps(report), file=sys.stderr, flush=True)
for pid in running:
    os.kill(pid, 9)
"""
LINE = SCRIPT.splitlines().index("    return number * 2") + 1
MODEL = "def scale():\n    return {number}\n"
REQUESTS = (["eval", "forks"], ["stacks", "--locals"], ["hang"], ["push", "--now", "model.py"])


@dataclass
class Forks:
    """What has become of the children of a job."""

    forks: int
    hung: list[str]
    """What the children that have not ended import."""
    longest: float
    """Duration in seconds of the longest fork in the parent."""


async def forks_beside_requests(relay: LocalRelay, directory: Path, *, sessions: int, forks: int) -> Forks:
    """Run a job that forks, attach and detach, and ask it everything else in between.

    Args:
        relay: To listen on.
        directory: An empty directory.
        sessions: Number of debug sessions; the first one imports debugpy.
        forks: Number of forks, at least, beside each request.
    """
    script, port = directory / "train.py", free_port()
    script.write_text(SCRIPT)
    (directory / "model.py").write_text(MODEL.format(number=1))
    options = ("--port", str(port), "--debug-ranks", "none", "--debug-allow-edit")
    async with running_job(relay, script, *options, arguments=[str(DEADLINE)]) as job:
        await until_registered(relay, directory, 1)
        async with running_client(relay, directory, "--ports", str(port)):
            for number in range(sessions):
                async with _more_forks(directory, forks):
                    client = await DapClient.connect("127.0.0.1", port, within=DEADLINE)
                    await client.attach({str(script): [{"line": LINE}]}, within=DEADLINE)
                    stopped = await client.wait_for_event("stopped", within=DEADLINE)
                    await client.request("setBreakpoints", {"source": {"path": str(script)}}, within=DEADLINE)
                    thread = {"threadId": stopped["body"]["threadId"]}
                    await client.request("continue", thread, within=DEADLINE)
                for request in REQUESTS:
                    await _ask(relay, directory, request, number + 2, forks)
                async with _more_forks(directory, forks):
                    await client.request("disconnect", {}, within=DEADLINE)
                    await client.close()
                for request in REQUESTS:
                    await _ask(relay, directory, request, number + 3, forks)
        return await _result(job, directory)


async def _ask(relay: LocalRelay, directory: Path, request: list[str], number: int, forks: int) -> None:
    (directory / "model.py").write_text(MODEL.format(number=number))
    arguments = [str(directory / each) if each == "model.py" else each for each in request]
    async with _more_forks(directory, forks):
        finished = await run("relay_client", *arguments, env=access(relay, directory, "send"))
    assert 0 == finished.status, (request, finished)


@contextlib.asynccontextmanager
async def _more_forks(directory: Path, number: int) -> AsyncIterator[None]:
    """Wait, at the end of the block, until the job has forked that many times since its beginning."""
    wanted = _forks(directory) + number
    yield
    while _forks(directory) < wanted:
        await asyncio.sleep(0.05)


def _forks(directory: Path) -> int:
    try:
        return int((directory / "forks").read_text() or 0)
    except FileNotFoundError:
        return 0


async def _result(job: Program, directory: Path) -> Forks:
    (directory / "stop").touch()
    line = await job.line('{"forks"')
    return Forks(**json.loads(line))

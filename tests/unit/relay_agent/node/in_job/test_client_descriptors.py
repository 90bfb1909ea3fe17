"""Facts about a registered process whose job closes descriptors, or sets a time-out for all sockets."""

import sys
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.stacks import collect_stacks
from relay_core.agent_api.stacks import ProcessStacks
from tests.support.jobs.processes import job, run_job
from tests.support.jobs.running import access
from tests.support.network.relay import HC, LocalRelay

START = f"""\
import os, socket, time
from relay_agent.node.in_job.client import NodeClient
from relay_agent.settings.model import DebugSettings
socket.setdefaulttimeout(TIMEOUT)
client = NodeClient(
    {{"hc": {HC!r}}},
    {{"port": 5678, "rank": 0, "pid": os.getpid(), "script": "train.py", "state": "running"}},
    DebugSettings(), answers={{"stacks": lambda _body: {{"how": "helper thread"}}}},
)
client.start()
print(client.attaching.listening.wait(3600), flush=True)
"""
# language: keep - source of a job
CLOSES = """\
os.closerange(3, 256)
files = [open(f"f{number}", "wb", buffering=0) for number in range(12)]
print("closed", flush=True)
while client.connections < 2:
    for file in files:
        file.write(b"x")
    time.sleep(0.001)
client.attaching.registered.wait(3600)
print(client.is_agent_alive(), all(os.stat(file.name).st_size == file.tell() for file in files), flush=True)
print(client.attaching.obstacle, flush=True)
sys.stdin.readline()
os._exit(0)
"""
PATIENT = "from relay_agent.node.in_job import client as module; module.START_TIME = 3600\n"
BEGINS = """\
print(client.connections, flush=True)
try:
    os.wait()
except ChildProcessError:
    print("no children", flush=True)
os._exit(0)
"""


STARTING = """\
import threading
from relay_agent.node.in_job import client as module
from relay_agent.node.in_job import reach_agent
module.START_TIME = 0
sys.executable = "./python-slow"
started, start = threading.Event(), reach_agent.start_detached
reach_agent.start_detached = lambda *arguments: (start(*arguments), started.set())[0]
"""
CLOSES_DURING_START = """\
started.wait(3600)
os.closerange(3, 256)
files = [open(f"f{number}", "wb", buffering=0) for number in range(12)]
open("go", "w").close()
client.attaching.registered.wait(3600)
for file in files:
    file.write(b"x")
    file.close()
print([os.stat(file.name).st_size for file in files] == [1] * 12, flush=True)
os._exit(0)
"""
SLOW_PYTHON = """\
#!/bin/sh
while [ ! -e go ]; do sleep 0.01; done
exec {} "$@"
"""


@pytest.fixture
def settings(relay: LocalRelay, tmp_path: Path) -> dict[str, str]:
    """The environment of a job with a node of its own."""
    return access(relay, tmp_path, "listen")


async def test_job_begins_when_its_registration_is_under_way(settings: dict[str, str]) -> None:
    """The first process of a node has neither half-open descriptors nor a child of relay-agent when its code begins."""
    start = START.replace("TIMEOUT", "None").rpartition("print(")[0].replace("client = ", f"{PATIENT}client = ")
    status, lines, err = await run_job(start + BEGINS, **settings)
    assert (0, ["1", "no children"]) == (status, lines), err


async def test_job_closes_descriptors_that_it_has_not_opened(
    relay: LocalRelay, settings: dict[str, str], tmp_path: Path
) -> None:
    """The numbers are left to the job's new files, and the process registers anew with a socket of its own."""
    async with job(START.replace("TIMEOUT", "None") + CLOSES, cwd=tmp_path, **settings) as running:
        assert ["True", "closed"] == [await running.line(), await running.line()]
        async with Tunnels(relay.endpoint, relay.sender, relay.tls) as client:
            await client.discover()
            lost, *_ = await collect_stacks(client, "all", with_locals=False)
            lines = [await running.line(), await running.line()]
            assert ["True True", "None"] == lines, (await running.finish())[2]
            found, *_ = await collect_stacks(client, "all", with_locals=False)
        assert "has exited" not in str(lost)
        assert ["helper thread"] == [reply.read(ProcessStacks).how for reply in found.replies.processes]
        _, _, err = await running.finish()
        assert "in use" not in err


async def test_job_closes_descriptors_while_an_agent_starts(settings: dict[str, str], tmp_path: Path) -> None:
    """On a machine that is too busy for the job to wait for the start, the numbers are left to the job's new files."""
    python = tmp_path / "python-slow"
    python.write_text(SLOW_PYTHON.format(sys.executable))
    python.chmod(0o700)
    start = START.replace("TIMEOUT", "None").rpartition("print(")[0].replace("client = ", f"{STARTING}client = ")
    async with job(start + CLOSES_DURING_START, cwd=tmp_path, **settings) as running:
        assert "True" == await running.line()
        status, lines, err = await running.finish()
    assert (0, []) == (status, lines), err


async def test_time_out_of_the_jobs_sockets(settings: dict[str, str]) -> None:
    """`socket.setdefaulttimeout` in the job does not end the connection to the agent."""
    code = "time.sleep(0.3); print(client.is_agent_alive(), client.connections, flush=True)\n"
    async with job(START.replace("TIMEOUT", "0.05") + code, **settings) as running:
        assert ["True", "True 1"] == [await running.line(), await running.line()]
        await running.finish()

"""Facts about `relay-agent run` in a process that receives orphans."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.support.deadline import DEADLINE
from tests.support.jobs import gone
from tests.support.run_job import agents_on

SUBREAPER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
RUN = (sys.executable, "-m", "relay_agent", "run", "--hc", "myhc", "--debug-ranks", "none", "--", sys.executable)
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
WAITS = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "pass"])
ended = 0
try:
    while os.wait():
        ended += 1
except ChildProcessError:
    sys.exit(40 + ended)
"""


def is_permitted() -> bool:
    """Whether this user may create a namespace of process ids."""
    return bool(shutil.which("unshare")) and not subprocess.run([*NAMESPACE, "true"], check=False).returncode


@pytest.fixture(params=["init process", "subreaper"])
def front(request):
    """Return what precedes `relay-agent run`."""
    if sys.platform != "linux":
        pytest.skip("needs Linux")
    if request.param == "init process":
        if not is_permitted():
            pytest.skip("unshare --pid is not permitted")
        return (*NAMESPACE, *RUN)
    return (sys.executable, "-c", SUBREAPER, *RUN[1:])


async def start(front, tmp_path, code):
    """Start a job whose agent cannot reach its relay."""
    (tmp_path / "train.py").write_text(code)
    variables = {
        "RELAY_CONNECTION_STRING": "Endpoint=sb://localhost:1/;SharedAccessKeyName=a;SharedAccessKey=Yg==",
        "RELAY_NODE_DIR": str(tmp_path / "node"),
    }
    return await asyncio.create_subprocess_exec(
        *(*front, str(tmp_path / "train.py")), env=os.environ | variables, stdout=asyncio.subprocess.PIPE
    )


async def agents_gone(tmp_path):
    """Wait for the end of this test's agents."""
    for agent in agents_on(tmp_path / "node"):
        assert await gone(agent.pid)


async def test_program_that_waits_for_all_its_children(front, tmp_path):
    """A program meets only the child that it has started, and `run` exits with its status."""
    process = await start(front, tmp_path, WAITS)
    await asyncio.wait_for(process.communicate(), DEADLINE)
    assert 41 == process.returncode
    await agents_gone(tmp_path)


async def test_signals_reach_the_program(front, tmp_path):
    """A signal to `run` gets to the program; if the program dies of it, the status is that of a shell."""
    if "unshare" in front:
        pytest.skip("the process id in the namespace is not that outside")
    code = "import signal, sys, time\nprint('ready', flush=True)\nsignal.pause()\n"
    process = await start(front, tmp_path, code)
    assert b"ready\n" == await asyncio.wait_for(process.stdout.readline(), DEADLINE)
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.communicate(), DEADLINE)
    assert 128 + signal.SIGTERM == process.returncode
    await agents_gone(tmp_path)

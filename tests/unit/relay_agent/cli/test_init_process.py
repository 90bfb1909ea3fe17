"""Facts about `relay-agent run` in a process that receives orphans."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.support.jobs.processes import gone
from tests.support.jobs.running import agents_on
from tests.support.machine.deadline import DEADLINE

SUBREAPER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
RUN = (sys.executable, "-m", "relay_agent", "run", "--hc", "myhc", "--debug-ranks", "none", "--", sys.executable)
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
IGNORES = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""
WITHOUT_CAP_KILL = f"import ctypes; ctypes.CDLL(None).prctl(24, 5, 0, 0, 0)\n{SUBREAPER}"
OTHER_USER = """
import os, sys
os.setresuid(65534, 65534, 65534)
print("ready", flush=True)
sys.stdin.read()
sys.exit(40)
"""
LIMITED = """
import ctypes, os, resource
from relay_agent.cli.init_process import remain_init_process
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if not os.getuid():
    os.setresuid(65534, 65534, 65534)  # the limit does not apply to root
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
before = os.getpid()
remain_init_process()
print(os.getpid() - before)
"""
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


async def start(front, tmp_path, code, **options):
    """Start a job whose agent cannot reach its relay."""
    (tmp_path / "train.py").write_text(code)
    variables = {
        "RELAY_CONNECTION_STRING": "Endpoint=sb://localhost:1/;SharedAccessKeyName=a;SharedAccessKey=Yg==",
        "RELAY_NODE_DIR": str(tmp_path / "node"),
    }
    return await asyncio.create_subprocess_exec(
        *(*front, str(tmp_path / "train.py")), env=os.environ | variables, stdout=asyncio.subprocess.PIPE, **options
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


async def test_ignored_sigchld_stays_ignored(front, tmp_path):
    """A program that inherits an ignored SIGCHLD still does, although `run` itself must not ignore it."""
    own = front.index(sys.executable)
    code = "import signal, sys\nsys.exit(40 + (signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN))\n"
    process = await start((*front[:own], sys.executable, "-c", IGNORES, *front[own:]), tmp_path, code)
    await asyncio.wait_for(process.communicate(), DEADLINE)
    assert 41 == process.returncode
    await agents_gone(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_command_runs_at_the_limit_of_processes():
    """If no child can be started, the command takes the place of `run`."""
    result = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (0, "0\n") == (result.returncode, result.stdout), result.stderr


@pytest.mark.skipif(sys.platform != "linux" or bool(os.getuid()), reason="needs root on Linux")
async def test_signal_to_a_program_of_another_user(tmp_path):
    """`run` continues to wait for a program that it may not send a signal to."""
    front = (sys.executable, "-c", WITHOUT_CAP_KILL, *RUN[1:])
    process = await start(front, tmp_path, OTHER_USER, stdin=asyncio.subprocess.PIPE)
    assert b"ready\n" == await asyncio.wait_for(process.stdout.readline(), DEADLINE)
    process.send_signal(signal.SIGUSR1)
    await asyncio.wait_for(process.communicate(b""), DEADLINE)
    assert 40 == process.returncode
    await agents_gone(tmp_path)

"""Facts about the job's handle on its agent: the real agent, started by processes that play the job."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from relay_agent.agent_order import AgentOrder
from relay_agent.agent_process import AgentProcess
from relay_core.errors import ConfigurationError
from tests.support.jobs import gone, job, run_job
from tests.support.relay import HC, LocalRelay

START = f"""\
import os, time
from relay_agent.agent_order import AgentOrder
from relay_agent.agent_process import AgentProcess
agent = AgentProcess()
order = AgentOrder(hc={HC!r}, logical_port=5678, target_port=9, pid=os.getpid())

def until(done):
    deadline = time.monotonic() + 20
    while not done() and time.monotonic() < deadline:
        time.sleep(0.02)
    return done()
"""
LISTEN = START + "agent.attend(order); print(agent.pid, until(lambda: agent.listening), flush=True)\n"


def relay_settings(relay: LocalRelay, directory: Path) -> dict[str, str]:
    return {
        "RELAY_CONNECTION_STRING_FILE": str(relay.connection_file(directory, "listen")),
        "RELAY_CA_FILE": str(relay.ca_file),
    }


async def test_agent_listens_and_leaves_with_the_job(relay, tmp_path):
    """The agent reports that it listens, and is gone, reaped and without a complaint, when the job has ended."""
    code = LISTEN + "print(agent)"
    status, out, err = await run_job(code, **relay_settings(relay, tmp_path))
    assert status == 0
    pid = int(out[0].split()[0])
    assert out == [f"{pid} True", f"<AgentProcess {pid} listening>"]
    assert "Traceback" not in err
    assert "Warning" not in err
    assert await gone(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_agent_leaves_when_the_job_is_killed(relay, tmp_path, how):
    """However the job ends, its agent leaves."""
    async with job(LISTEN + "sys.stdin.readline()", **relay_settings(relay, tmp_path)) as running:
        pid = int((await running.line()).split()[0])
        running.process.send_signal(how)
        assert await gone(pid)


async def test_forked_child_neither_keeps_nor_ends_the_agent(relay, tmp_path):
    """A forked child that ends leaves the agent alone; one that outlives the job does not keep it."""
    code = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"  # Python 3.12 on forks with threads
    code += LISTEN + (
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "print(os.waitpid(child, 0)[1], agent.is_mine, agent.ended.wait(0.3), flush=True)\n"
        "if os.fork() == 0:\n"
        "    print(os.getpid(), agent.is_mine, flush=True); sys.stdin.read(); sys.exit(0)\n"
        "sys.stdin.readline(); os._exit(0)\n"
    )
    async with job(code, **relay_settings(relay, tmp_path)) as running:
        agent = int((await running.line()).split()[0])
        assert await running.line() == "0 True False"
        child = int((await running.line()).split()[0])
        running.process.kill()
        assert await gone(agent)
        assert psutil.pid_exists(child)
        os.kill(child, signal.SIGKILL)
        assert await gone(child)


async def test_secrets_go_through_the_pipe(relay, tmp_path):
    """A connection string that is given to the call shows neither in the agent's arguments nor in its environment."""
    code = START + (
        "agent.attend(order._replace(connection_string=sys.stdin.readline().strip(), ca_file=sys.argv[1]))\n"
        "print(agent.pid, until(lambda: agent.listening), order, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    async with job(code, str(relay.ca_file)) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(relay.connection_string("listen").encode() + b"\n")
        pid, listening, shown = (await running.line()).split(maxsplit=2)
        agent = psutil.Process(int(pid))
        assert listening == "True"
        assert shown == f"<AgentOrder '{HC}' port 5678 -> 127.0.0.1:9>"
        assert agent.cmdline()[1:] == ["-m", "relay_agent", "attend"]
        assert relay.listen_key not in " ".join(agent.environ().values())
        status, out, err = await running.finish()
        assert (status, out) == (0, [])
        assert f"relay-agent: listening on '{HC}'" in err
        assert await gone(agent.pid)


async def test_failure_reaches_the_job():
    """An agent that cannot work tells the job why, and leaves no zombie."""
    code = START + (
        "agent.attend(order)\n"
        "print(agent.ended.wait(20), agent.failure.sentence, agent, sep='|')\n"
        "print(os.path.exists(f'/proc/{agent.pid}'))\n"
    )
    status, out, err = await run_job(code)
    assert status == 0
    assert out[0].startswith("True|no connection string is configured|<AgentProcess ")
    assert out[0].endswith(" ended>")
    assert out[1] == "False"
    assert "Warning" not in err


async def test_agent_that_dies_without_a_word():
    """An agent that is killed has ended with its status as the reason, and orders to it are no error."""
    code = START + (
        "os.kill(agent.pid, 9)\n"
        "print(agent.ended.wait(20), agent.failure)\n"
        "agent.attend(order)\n"
    )  # fmt: skip
    assert await run_job(code) == (0, ["True the agent process ended with status -9"], "")


async def test_dismissed_agent_leaves(relay, tmp_path):
    """A dismissed agent leaves without a failure while the job goes on."""
    code = LISTEN + "agent.dismiss(); print(agent.ended.wait(20), agent.failure)"
    status, out, _ = await run_job(code, **relay_settings(relay, tmp_path))
    assert (status, out[1]) == (0, "True None")


async def test_agent_is_not_debugged():
    """An agent that is started under an active debugger is not made a debuggee of it."""
    code = "import debugpy; debugpy.listen(('127.0.0.1', 0))\n" + START + (
        "print(open(f'/proc/{agent.pid}/cmdline').read().split(chr(0))[1:-1])"
    )  # fmt: skip
    status, out, _ = await run_job(code, PYDEVD_DISABLE_FILE_VALIDATION="1")
    assert (status, out) == (0, ["['-m', 'relay_agent', 'attend']"])


async def test_files_of_the_job_do_not_get_in_the_way(tmp_path):
    """The agent starts in any folder, also in one whose files are named like modules that the agent needs."""
    if sys.version_info < (3, 11):
        pytest.skip("-m puts the current folder first before Python 3.11")
    for name in ("json.py", "websockets.py", "relay_agent.py"):
        (tmp_path / name).write_text("raise SystemExit('this is the job')")
    code = "sys.path.remove('')\n" + START + "agent.attend(order); print(agent.ended.wait(20), agent.failure.sentence)"
    async with job(code, cwd=tmp_path) as running:
        status, out, _ = await running.finish()
    assert (status, out) == (0, ["True no connection string is configured"])


async def test_embedded_python(monkeypatch):
    """Where Python has no executable, the error says that no agent can be started."""
    monkeypatch.setattr("sys.executable", "")
    with pytest.raises(ConfigurationError, match="no executable"):
        AgentProcess()
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(ConfigurationError, match="the agent process cannot be started"):
        AgentProcess()


def test_order_without_settings():
    """What the call leaves out is null in the order: the agent looks it up itself."""
    order = AgentOrder("myhc", 5678, 40123, 7)
    assert order._asdict() == {
        "hc": "myhc",
        "logical_port": 5678,
        "target_port": 40123,
        "pid": 7,
        "connection_string": None,
        "connection_string_file": None,
        "ca_file": None,
        "connection_string_secret": None,
        "key_vault": None,
        "namespace": None,
        "identity": None,
        "tunnel_key_file": None,
        "tunnel_key_secret": None,
    }

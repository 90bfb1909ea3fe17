"""Facts about a process and its node's agent: real agents, started by real processes that play the job."""

import ast
import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from relay_agent.job.paths import in_front
from relay_core.compat import timeout
from tests.support.jobs.processes import Job, gone, job, run_job, suspend
from tests.support.jobs.running import agents_on
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import HC, LocalRelay, local_relay

START = f"""\
import os, time
from relay_agent.node.in_job.attach_state import State
from relay_agent.node.in_job.client import NodeClient
from relay_agent.settings.model import DebugSettings
access = {{"hc": {HC!r}}}
target = {{"port": 5678, "rank": 0, "pid": os.getpid(), "script": "train.py", "state": "running"}}
def start(port=5678, answers=()):
    client = NodeClient(access, {{**target, "port": port}}, DebugSettings(), answers=dict(answers))
    client.start()
    return client
def show_agent(client):
    print(client.attaching.listening.wait(3600), client.agent_pid, flush=True)
def kill_agent(client):
    client.attaching._current = State.UNREACHABLE, None  # the successor's report can then be waited for
    os.kill(client.agent_pid, 9)
"""
LISTEN = START + "client = start(); show_agent(client)\n"
PATIENT = """\
import sys

if "node-agent" in sys.orig_argv:
    from relay_agent.node.in_agent import server

    server.FIRST_PROCESS_TIMEOUT = 3600.0
"""
"""A `sitecustomize` for agents."""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node of the test's own."""
    return tmp_path / "node"


def settings(relay: LocalRelay, node: Path) -> dict[str, str]:
    return {
        "RELAY_CONNECTION_STRING_FILE": str(relay.connection_file(node.parent, "listen")),
        "RELAY_CA_FILE": str(relay.ca_file),
        "RELAY_NODE_DIR": str(node),
    }


def patient(directory: Path) -> dict[str, str]:
    """Return the environment of a job whose agent waits an hour for its first process, unless it need not wait."""
    (directory / "sitecustomize.py").write_text(PATIENT)
    return {"PYTHONPATH": in_front(directory, os.environ.get("PYTHONPATH"))}


def agent_of(line: str) -> int:
    listening, pid = line.split()
    assert listening == "True"
    return int(pid)


async def output_of(code: str, **environment: str) -> tuple[list[str], str]:
    """Run a job to its end, which must have status 0, and return the lines of its stdout, and its stderr."""
    status, out, err = await run_job(code, **environment)
    assert status == 0
    return out, err


async def error_line(running: Job, part: str) -> None:
    """Read the job's stderr up to a line that contains `part`."""
    assert running.process.stderr is not None
    while part not in (line := (await asyncio.wait_for(running.process.stderr.readline(), DEADLINE)).decode()):
        assert line, f"the job ended without {part!r}"


async def test_agent_listens_and_leaves_with_the_job(relay, node):
    """The agent listens, and exits without an error message and without leaving files after the job has ended."""
    out, err = await output_of(LISTEN + "print(client.attaching.state.name)", **settings(relay, node))
    assert out[1] == "LISTENING"
    assert "Traceback" not in err
    assert "Warning" not in err
    assert await gone(agent_of(out[0]))
    assert not node.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_agent_leaves_when_the_job_is_killed(relay, node, how):
    """However the job ends, its agent leaves, and so do the files."""
    async with job(LISTEN + "sys.stdin.readline()", **settings(relay, node)) as running:
        pid = agent_of(await running.line())
        running.process.send_signal(how)
        assert await gone(pid)
    assert not node.exists()


async def test_processes_of_a_node_share_an_agent(relay, node):
    """Those that come at the same time find one agent, which stays for as long as one of them lives."""
    code = START + ("client = start(int(sys.argv[1])); show_agent(client)\nsys.stdin.readline()\n")
    environment = settings(relay, node)
    async with job(code, "5678", **environment) as one, job(code, "5679", **environment) as two:
        agents = {agent_of(await running.line()) for running in (one, two)}
        assert len(agents) == 1
        one.process.kill()
        assert await gone(one.pid)
        assert psutil.pid_exists(*agents)
        await two.finish()
        assert await gone(*agents)
    assert not node.exists()


async def test_port_that_is_taken(relay, node):
    """The second process that claims a port is refused, both log it, and the first one keeps the port."""
    code = START + (
        "client = start(); client.attaching.registered.wait(3600); print(client.attaching.obstacle, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    environment = settings(relay, node)
    async with job(code, **environment) as one:
        assert await one.line() == "None"
        async with job(code, **environment) as two:
            assert await two.line() == (
                f"port 5678 is already in use on this node by pid {one.pid}, train.py. "
                "hint: give this process another --debug-port"
            )
            await two.finish()
        _, _, err = await one.finish()
        assert f"relay-agent: pid {two.pid}, train.py also claimed port 5678 and was refused" in err


async def test_agent_is_not_in_the_process_tree_of_the_job(relay, node):
    """The agent is not a descendant of the process that started it, and in neither its process group nor its session.

    So it outlives a launcher or debugger that ends this process with all its descendants, or its process group.
    """
    code = LISTEN + "print(os.getpgid(client.agent_pid), os.getsid(client.agent_pid), flush=True)\nsys.stdin.readline()"
    async with job(code, **settings(relay, node)) as running:
        agent = agent_of(await running.line())
        group, session = map(int, (await running.line()).split())
        assert psutil.Process(running.pid).children(recursive=True) == []
        assert running.pid not in [process.pid for process in psutil.Process(agent).parents()]
        assert os.getpgid(running.pid) != group
        assert os.getsid(running.pid) != session


async def test_agent_that_fails_at_its_start(node, tmp_path):
    """If the agent process fails before it serves anybody, the job is notified at once and no files are left."""
    code = START + f"sys.executable = {str(tmp_path / 'python')!r}; client = start()\n"
    code += "print(client.attaching.hopeless.wait(3600), client.attaching.obstacle)"
    (tmp_path / "python").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    out, _ = await output_of(code, RELAY_NODE_DIR=str(node))
    assert out == ["True the agent process failed to start. hint: see the lines above"]
    assert not node.exists()


async def test_agent_that_is_killed(relay, node):
    """A process whose agent is killed continues, registers with the next, and draws the same random numbers."""
    code = LISTEN + (
        "import random; state = random.getstate()\n"
        "kill_agent(client)\n"
        "show_agent(client)\n"
        "assert random.getstate() == state\n"
    )
    out, err = await output_of(code, **settings(relay, node))
    first, second = map(agent_of, out)
    assert first != second
    assert "Traceback" not in err
    assert await gone(second)
    assert not node.exists()


async def test_agents_that_are_killed_again_and_again(relay, node):
    """A process never gives up agents that work until they are killed."""
    code = LISTEN + "for _ in range(7):\n    kill_agent(client)\n    show_agent(client)\n"
    code += "print(client.attaching.state.name)"
    out, _ = await output_of(code, **settings(relay, node))
    assert len({agent_of(line) for line in out[:8]}) == 8
    assert out[8] == "LISTENING"


async def test_debugger_is_released_when_the_agent_was_killed(relay, node):
    """The next agent does not know that a rank was held, so the process restores speed and timeouts on its own."""
    code = START + (
        "client = start(answers={\n"
        "    'release': lambda body: print('released', flush=True),\n"
        "    'timeouts': lambda body: print('timeouts', body['held'], flush=True),\n"
        "})\n"
        "print(client.attaching.listening.wait(3600), client.is_connected, flush=True)\n"
        "os.kill(client.agent_pid, 9)\n"
        "while client.is_connected: time.sleep(0.001)\n"
        "print('lost', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    async with job(code, **settings(relay, node)) as running:
        assert "True True" == await running.line()
        lines = sorted([await running.line() for _ in range(3)])  # printed by two threads
        assert ["lost", "released", "timeouts False"] == lines
        await running.finish()


async def test_agent_that_is_being_killed_is_not_alive(relay, node):
    """Only an agent that answers is alive, because the connection of one that is being killed may still be open."""
    code = LISTEN + (
        "print(client.is_agent_alive(), flush=True)\n"
        "sys.stdin.readline(); print('asking', flush=True); print(client.is_agent_alive(), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    async with job(code, **settings(relay, node)) as running:
        agent = agent_of(await running.line())
        assert "True" == await running.line()
        await suspend(agent)
        running.process.stdin.write(b"\n")
        assert "asking" == await running.line()
        os.kill(agent, signal.SIGKILL)
        assert "False" == await running.line()
        await running.finish()


async def test_certificate_that_is_not_trusted_after_the_agent_was_killed(relay, node, tmp_path):
    """An agent that replaces one that has listened retries where the first one would have ended."""
    code = LISTEN + (
        "sys.stdin.readline(); kill_agent(client)\n"
        "print(client.attaching.listening.wait(3600), client.attaching.hopeless.is_set(), flush=True)\n"
    )
    async with job(code, **settings(relay, node)) as running:
        agent_of(await running.line())
        await relay.server.stop()
        async with local_relay(tmp_path / "other", port=relay.server.port):
            running.process.stdin.write(b"\n")
            await error_line(running, "not listening, retrying: the certificate of localhost")
        await relay.server.start()
        assert await running.line() == "True False"
        await running.finish()


async def test_forked_child_neither_keeps_nor_ends_the_membership(relay, node):
    """A forked child that ends changes nothing; one that outlives the job does not keep the agent."""
    code = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"  # Python 3.12 on forks with threads
    code += LISTEN + (
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "print(os.waitpid(child, 0)[1], client.is_mine, client.attaching.hopeless.wait(0.3), flush=True)\n"
        "if os.fork() == 0:\n"
        "    print(os.getpid(), client.is_mine, flush=True); sys.stdin.read(); sys.exit(0)\n"
        "sys.stdin.readline(); os._exit(0)\n"
    )
    async with job(code, **settings(relay, node)) as running:
        agent = agent_of(await running.line())
        assert await running.line() == "0 True False"
        child = int((await running.line()).split()[0])
        running.process.kill()
        assert await gone(agent)
        assert psutil.pid_exists(child)
        os.kill(child, signal.SIGKILL)
        assert await gone(child)


async def test_secrets_go_through_the_socket(relay, node):
    """A connection string that is given to the call shows neither in the agent's arguments nor in its environment."""
    code = START + (
        "access |= {'connection_string': sys.stdin.readline().strip(), 'ca_file': sys.argv[1]}\n"
        "client = start(); show_agent(client)\n"
        "sys.stdin.readline()\n"
    )
    async with job(code, str(relay.ca_file), RELAY_NODE_DIR=str(node)) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(relay.connection_string("listen").encode() + b"\n")
        agent = psutil.Process(agent_of(await running.line()))
        assert agent.cmdline()[1:5] == ["-m", "relay_agent", "node-agent", str(node)]
        assert relay.listen_key not in " ".join([*agent.cmdline(), *agent.environ().values()])
        status, out, err = await running.finish()
        assert (status, out) == (0, [])
        assert f"relay-agent: listening on '{HC}'" in err
        assert await gone(agent.pid)


async def test_failure_reaches_the_job(node):
    """An agent that cannot listen sends the job the reason, leaves no zombie, and is not started again."""
    code = START + (
        "client = start(); hopeless = client.attaching.hopeless.wait(3600)\n"
        "print(hopeless, client.attaching.obstacle.sentence, client.attaching.state.name, sep='|')\n"
        "print(client.agent_pid)\n"
    )
    out, err = await output_of(code, RELAY_NODE_DIR=str(node))
    assert await gone(int(out[1]))
    assert out[0] == "True|no connection string is configured|HOPELESS"
    assert "Warning" not in err
    assert "no connection string" not in err  # the process logs it, with its consequence


async def test_what_the_agent_asks_for(relay, node):
    """An answer goes back to the agent; what raises goes back as an error, and the thread lives on.

    That includes SystemExit, which a module of the job raises that has the name of one of Python's.
    """
    code = START + (
        "client = start(answers={'one': lambda body: body['x'], 'two': lambda body: 1 / 0, 'exit': exit})\n"
        "sent = []; client._send = lambda message: sent.append(message)\n"
        "for what in ('one', 'two', 'exit', 'three'): client._receive({'ask': what, 'id': what, 'body': {'x': what}})\n"
        "print(sent)"
    )
    out, _ = await output_of(code, **settings(relay, node))
    assert ast.literal_eval(out[0]) == [
        {"answer": "one", "result": "one"},
        {"answer": "two", "error": "ZeroDivisionError: division by zero", "hint": ""},
        {"answer": "exit", "error": "SystemExit: {'x': 'exit'}", "hint": ""},
        {"answer": "three", "error": "this process does not support the request", "hint": ""},
    ]


async def test_agent_is_not_debugged(relay, node):
    """An agent that is started under an active debugger is not made a debuggee of it."""
    code = "import debugpy; debugpy.listen(('127.0.0.1', 0))\n" + LISTEN
    code += "print(open(f'/proc/{client.agent_pid}/cmdline').read().split(chr(0))[1:4])"
    out, _ = await output_of(code, PYDEVD_DISABLE_FILE_VALIDATION="1", **settings(relay, node))
    assert out[1] == "['-m', 'relay_agent', 'node-agent']"


async def test_files_of_the_job_do_not_get_in_the_way(tmp_path, node):
    """The agent starts in any folder, also in one whose files are named like modules that the agent needs."""
    if sys.version_info < (3, 11):
        pytest.skip("-m puts the current folder first before Python 3.11")
    for name in ("json.py", "websockets.py", "relay_agent.py"):
        (tmp_path / name).write_text("raise SystemExit('this is the job')")
    code = f"sys.path.remove('')\n{START}client = start().attaching\n"
    code += "print(client.hopeless.wait(3600), client.obstacle.sentence)"
    async with job(code, cwd=tmp_path, RELAY_NODE_DIR=str(node)) as running:
        status, out, _ = await running.finish()
    assert (status, out) == (0, ["True no connection string is configured"])


@pytest.mark.parametrize(
    ("executable", "sentence"),
    [
        ("", "this program embeds Python"),
        ("/nonexistent/python", "cannot start the agent process"),
    ],
)
async def test_python_that_cannot_be_started(node, executable, sentence):
    """If no agent can be started, the failure has the reason, and no files are left."""
    code = f"{START}sys.executable = {executable!r}; client = start().attaching\n"
    code += "client.hopeless.wait(3600); print(client.obstacle)"
    out, _ = await output_of(code, RELAY_NODE_DIR=str(node))
    assert sentence in out[0]
    assert not node.exists()


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 4, 8, 16])
async def test_job_that_ends_while_its_agent_is_started(relay, node, milliseconds):
    """However early the job ends, soon after it neither an agent nor a file is left."""
    code = START + f"start(); time.sleep({milliseconds} / 1000)"
    _, err = await output_of(code, **patient(node.parent), **settings(relay, node))
    assert "Traceback" not in err
    async with timeout(DEADLINE):
        while node.exists():
            await asyncio.sleep(0.05)


async def test_agent_of_a_job_that_ends_before_it_registers(relay, node):
    """The agent leaves with a job that was over before it could register; nothing keeps the job's stderr open."""
    code = """
        import os
        from relay_agent.node.in_job import reach_agent
        from relay_agent.node.directory import NodeDirectory
        directory = NodeDirectory.of({})
        reach_agent._start(directory, directory.try_lock())
        os._exit(0)
    """
    await output_of(code, **patient(node.parent), **settings(relay, node))  # until its stderr has ended
    assert agents_on(node) == []
    assert not node.exists()


async def test_ctrl_c_ends_the_wait_for_the_last_bytes(relay, node):
    """Ctrl-C ends a job that waits for its agent at exit, without a traceback."""
    code = LISTEN + (
        "import signal, threading\n"
        "def interrupt():\n"
        "    while not client._done._cond._waiters: time.sleep(0.001)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "sys.stdin.readline()\n"
    )
    async with job(code, **settings(relay, node)) as running:
        agent = agent_of(await running.line())
        await suspend(agent)
        running.process.stdin.write(b"\n")
        assert await gone(running.pid)
        os.kill(agent, signal.SIGKILL)  # it has the job's stderr, too
        status, output, errors = await running.finish()
        assert (0, [], False) == (status, output, "leave" in errors)

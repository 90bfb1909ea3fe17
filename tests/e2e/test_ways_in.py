"""Facts about the ways into a job besides F5 on a port: an editor that listens, forwarded ports, the ranks of MPI."""

import asyncio
import contextlib
import re
import signal
import sys
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.editors.listening import listening_editor
from tests.support.editors.stopped import Stopped
from tests.support.jobs import mpi
from tests.support.jobs.processes import job as python
from tests.support.jobs.running import access, running_client, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Finished, program, run
from tests.support.machine.streams import local_server
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

RANKS = """\
import os
import sys
import time
from pathlib import Path

from relay_agent.settings.ranks import identify

def train(rank, progress):
    step = 0
    while not Path("stop").exists():
        step += 1
        progress.write_text(str(step))
        time.sleep(0.01)

os.chdir(sys.argv[1])
rank = identify(os.environ).rank
train(rank, Path(f"steps-{rank}"))
"""
LINE = RANKS.splitlines().index("        step += 1") + 1


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program that counts forever, as every rank of a job does."""
    path = tmp_path / "train.py"
    path.write_text(RANKS)
    return path


# An editor that listens:


@pytest.mark.parametrize("ranks", ["none", "0"])
async def test_listening_editor(relay: LocalRelay, script: Path, ranks: str) -> None:
    """An editor that holds the port is dialled by a job that runs or waits, and again when it listens again.

    Neither its `disconnect` nor its `terminate` ends the job.
    """
    port = free_port()
    options = ("--port", str(port), "--debug-ranks", ranks)
    async with (
        running_job(relay, script, *options, arguments=[str(script.parent)]),
        listening_editor(port, script, LINE) as session,
        running_client(relay, script.parent, "--ports", str(port)) as client,
    ):
        assert re.search(
            rf"(?<!warning: )port {port} is in use by .*debugpy.* \(pid \d+\): the job will connect", client.stderr
        )
        await session.until_stopped()
        first = int(await session.value("step"))
        await session.leave()
        async with listening_editor(port, script, LINE) as again:
            await again.until_stopped()
            second = int(await again.value("step"))
            assert second > first
            await again.client.request("terminate", within=DEADLINE)
        while steps_of(script.parent, 0) < second + 10:  # `terminate` only detaches
            await asyncio.sleep(0.02)


# Forwards:

WEB = """\
import http.server
import sys

import relay_agent

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"losses")

    def log_message(self, *_):
        pass

relay_agent.start_remote_debugging_from_args()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


async def test_web_server_of_the_job(relay: LocalRelay, tmp_path: Path) -> None:
    """A port that `relay-agent run --forward` names is answered by the job's server; another is refused at once."""
    script, remote, local, other = tmp_path / "web.py", free_port(), free_port(), free_port()
    script.write_text(WEB)
    options = ("--port", str(free_port()), "--debug-ranks", "none", "--forward", str(remote))
    async with (
        local_server(refuse_to_be_called) as (secret, connections),
        running_job(relay, script, *options, arguments=[str(remote)]),
        running_client(relay, tmp_path, "--forward", f"{remote}:{local}", "--forward", f"{secret}:{other}") as client,
    ):
        assert b"losses" in await page(local)
        line = await client.line(f"no agent on '{HC}' serves port {secret}; ")  # before anything connects to the port
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", other)
            with contextlib.suppress(ConnectionResetError):
                assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
            writer.close()
        assert f"relay-client: error: port {other} (to port {secret}): no agent on" in line
        assert f"hint: start the job with --debug-forward {secret}, or use 'relay-agent serve " in line
        client.process.send_signal(signal.SIGINT)
        ended = await client.finish()
    assert [] == connections
    assert 1 == ended.stderr.count(f"serves port {secret}; "), "the same refusal is logged once"
    assert "connection 1" not in ended.stderr, "a forward's connections are not logged"


async def test_tensorboard_of_the_job(relay: LocalRelay, tmp_path: Path) -> None:
    """`relay-client tensorboard` prints a URL that leads to a server which the script's --debug-forward names."""
    remote, local = free_port(), free_port()
    arguments = (str(remote), "--is-debug", "true", "--debug-relay-connection-name", HC, "--debug-ranks", "none")
    client = ("tensorboard", "--hc", HC, "--port", f"{remote}:{local}")
    async with (
        python(WEB, *arguments, "--debug-forward", str(remote), **access(relay, tmp_path, "listen")),
        program("relay_client", *client, env=access(relay, tmp_path, "send")) as tensorboard,
    ):
        assert tensorboard.process.stdout is not None
        url = await asyncio.wait_for(tensorboard.process.stdout.readline(), DEADLINE)
        assert f"http://127.0.0.1:{local}/\n" == url.decode()
        assert b"losses" in await page(local)


async def refuse_to_be_called(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.0 200 OK\r\n\r\na secret")


async def page(port: int) -> bytes:
    """Return what an HTTP server answers; the job's may begin to listen a moment later than its agent."""
    answer = b""
    while not answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                answer = await asyncio.wait_for(reader.read(), DEADLINE)
        finally:
            writer.transport.abort()
    return answer


# MPI:


@pytest.mark.parametrize("launcher", mpi.LAUNCHERS)
async def test_one_rank_of_an_mpi_job(relay: LocalRelay, script: Path, launcher: str) -> None:
    """Of three ranks that mpiexec starts, rank 2 stands at a breakpoint while the others run, and all end well."""
    mpi.need(launcher)
    mpiexec, variables = mpi.mpiexec(launcher, 3, [sys.executable])
    port, directory = free_port(), script.parent
    options = ("--port", str(port - 2), "--debug-ranks", "none")
    async with (
        running_job(relay, script, *options, arguments=[str(directory)], launcher=mpiexec, **variables) as job,
        running_client(relay, directory, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap,
    ):
        await dap.attach({str(script): [{"line": LINE}]}, within=DEADLINE)
        session = Stopped(dap)
        await session.until_stopped()
        assert "2" == await session.value("rank")
        before = [steps_of(directory, rank) for rank in range(3)]
        while not all(steps_of(directory, rank) >= before[rank] + 10 for rank in (0, 1)):
            await asyncio.sleep(0.02)
        assert before[2] == steps_of(directory, 2) == int(await session.value("step"))
        await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        (directory / "stop").touch()
        assert 0 == (await job.finish()).status
    assert not (directory / "node").exists()


def steps_of(directory: Path, rank: int) -> int:
    """Return how far a rank has come."""
    path = directory / f"steps-{rank}"
    return int(path.read_text() or 0) if path.exists() else 0


# A prompt:

BEGINS = """\
total = 7
print(total + 1)
"""
CALLS = """\
import relay_agent

relay_agent.start_remote_debugging_from_args()
total = 7
print(total + 1)
"""
RUN = """
import runpy
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


async def test_pdb_of_a_program_that_has_not_begun(relay: LocalRelay, tmp_path: Path) -> None:
    """Of a job that waits before its program, pdb shows the program's beginning, and not what waits."""
    script = tmp_path / "begins.py"
    script.write_text(BEGINS)
    async with running_job(relay, script, "--port", str(free_port())) as job:
        seen = await pdb(relay, tmp_path, "until 2", "p total", "c")
        lines = [line for line in seen.stdout.splitlines() if line.startswith("> ")]
        assert lines[0] in {f"> {script}({number})<module>()" for number in (0, 1)}  # 0: until Python 3.11
        assert f"> {script}(2)<module>()\n-> print(total + 1)\n7\n" in seen.stdout
        assert "8\n" == (await job.finish()).stdout


async def test_pdb_of_a_script_that_waits(relay: LocalRelay, tmp_path: Path) -> None:
    """Of a script that waits in a call of relay_agent, pdb shows the line behind that call."""
    script = tmp_path / "calls.py"
    script.write_text(CALLS)
    arguments = ("--is-debug", "true", "--debug-relay-connection-name", HC, "--debug-port", str(free_port()))
    async with python(RUN, str(script), *arguments, **access(relay, tmp_path, "listen")) as job:
        seen = await pdb(relay, tmp_path, "n", "p total", "c")
        lines = [line for line in seen.stdout.splitlines() if line.startswith("> ")]
        assert [f"> {script}({number})<module>()" for number in (4, 5)] == lines
        assert "\n7\n" in seen.stdout
        assert "the job ended with status 0" in seen.stdout.splitlines()
        assert ["8"] == (await job.finish())[1]


async def test_pdb_of_a_script_that_is_killed(relay: LocalRelay, tmp_path: Path) -> None:
    """At the end of the job, pdb shows how it ended."""
    script = tmp_path / "killed.py"
    script.write_text(CALLS + "\nimport os\nos.kill(os.getpid(), 9)\n")
    arguments = ("--is-debug", "true", "--debug-relay-connection-name", HC, "--debug-port", str(free_port()))
    async with python(RUN, str(script), *arguments, **access(relay, tmp_path, "listen")) as job:
        seen = await pdb(relay, tmp_path, "c")
        assert "the job was killed by SIGKILL (the usual cause is lack of memory)" in seen.stdout.splitlines()
        assert -9 == (await job.finish())[0]


async def pdb(relay: LocalRelay, directory: Path, *commands: str) -> Finished:
    """Run `relay-client pdb` with these commands."""
    lines = "".join(f"{command}\n" for command in commands).encode()
    command = ("--hc", HC, "pdb", "--rank", "0")
    return await run("relay_client", *command, env=access(relay, directory, "send"), stdin=lines)

"""Facts about relay-client on a system without Unix calls, such as Windows: here they are taken away from it."""

import asyncio
import contextlib
import json
import signal
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Finished, Program, environment
from tests.support.network.fleet import DAP_START, KEY, node_of
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.e2e

WITHOUT_UNIX = """
import asyncio, os, signal, socket, sys

pair, family = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *_: pair(family)  # the event loop has one; Windows makes it of TCP
for name in ("fcntl", "grp", "pwd", "readline", "resource", "termios", "tty", "pty", "uvloop"):
    sys.modules[name] = None
for module, names in {
    asyncio: ("open_unix_connection", "start_unix_server"),
    os: ("O_CLOEXEC", "O_NOFOLLOW", "fork", "geteuid", "getgid", "getuid", "killpg",
         "memfd_create", "pread", "pwrite", "uname"),
    signal: ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGWINCH", "pthread_sigmask"),
    socket: ("AF_NETLINK", "AF_UNIX", "SO_PEERCRED", "SO_REUSEPORT", "TCP_QUICKACK"),
}.items():
    for name in names:
        delattr(module, name)

def add_signal_handler(*_):
    raise NotImplementedError

asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler

from pathlib import Path
from relay_core import socket_tables

socket_tables.PROC_NET = Path("/no/such/directory")
from relay_client.cli import run
run()
"""


@pytest.fixture
def env(relay: LocalRelay, tmp_path: Path) -> dict[str, str]:
    """The environment of the relay-clients of this test."""
    access = f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
    own = {"RELAY_CLIENT_DIR": str(tmp_path / "own"), "USERNAME": "", "USER": "", "LOGNAME": "", "LNAME": ""}
    return {**own, "RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file)}


@contextlib.asynccontextmanager
async def client(env: dict[str, str], *arguments: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", WITHOUT_UNIX, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**env),
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def run(env: dict[str, str], *arguments: str) -> Finished:
    async with client(env, *arguments) as program:
        return await program.finish()


async def test_an_editor_and_other_programs(relay: LocalRelay, env: dict[str, str]) -> None:
    """An editor reaches a rank, other commands find relay-client over TCP, Ctrl-C ends it, without a traceback."""
    port = free_port()
    async with (
        node_of(relay, port, name="rank", fields={"host": "node-1"}, rank=3, dap_only=True, state="running") as node,
        client(env, "--ports", str(port)) as first,
    ):
        await first.line("ready on")
        assert "any user of this machine can use the local ports" in first.stderr
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(DAP_START)
        assert f"rank:{port}\n" == (await asyncio.wait_for(reader.readline(), DEADLINE)).decode()
        await first.line("rank 3 on node-1 is held by somebody@")
        status = await run(env, "status", "--json")
        assert 0 == status.status, status.stderr
        assert [port] == [each["port"] for each in json.loads(status.stdout)[0]["ports"]]
        targets = await run(env, "targets")
        assert "node-1  3" in targets.stdout
        node.change(port, state="crashed", detail="ValueError: no")
        writer.close()
        await writer.wait_closed()
        await first.line("is free")
        first.process.send_signal(signal.SIGINT)
        ended = await first.finish()
    for finished in (status, targets, ended):
        assert 0 == finished.status, finished.stderr
        assert "Traceback" not in finished.stderr

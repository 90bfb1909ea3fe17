"""Facts about other users of a node whose job's children are followed: no port of the job's family serves them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from relay_core.dap.framing import Message, encode
from tests.support.editors.listening import listening_editor
from tests.support.jobs.running import agents_on, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import connecting_stranger, needs_owners, needs_second_user
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program
from tests.support.network.relay import LocalRelay

pytestmark = [
    needs_owners,
    needs_second_user,
]

PROGRAM = """\
import os
import subprocess
import sys
import time

def work():
    return 7 * 7

def start_child():
    if sys.argv[1] == "exec":
        subprocess.run([sys.executable, __file__, "child"], check=True)
    elif (child := os.fork()) == 0:
        work()
        os._exit(0)
    else:
        os.waitpid(child, 0)

if sys.argv[1] == "child":
    work()
else:
    start_child()
    print("child ended", file=sys.stderr, flush=True)
    while True:
        time.sleep(0.05)
"""
BREAKPOINT = 7
"""In `work`, which only the child runs."""
CHILD = encode({"seq": 1, "type": "request", "command": "pydevdAuthorize", "arguments": {}})
"""What the other side of a child's connection might send."""
METHODS = pytest.mark.parametrize("method", ["exec", "fork"])


@METHODS
async def test_other_users_cannot_reach_a_followed_child(relay: LocalRelay, tmp_path: Path, method: str) -> None:
    """Before, during and after the attach to a child, all ports of the job's family reset their connections."""
    port = free_port()
    async with family(relay, tmp_path, port, method) as job, client_of(relay, port):
        await job.line("waiting up to")
        await try_as_stranger(job, tmp_path, expected=0)
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            await editor.attach({}, within=DEADLINE, subProcess=True)
            await try_while_a_child_is_debugged(editor, job, tmp_path, expected=2)
            await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        await try_as_stranger(job, tmp_path, expected=2)


@METHODS
async def test_other_users_cannot_reach_the_editor_of_a_child(relay: LocalRelay, tmp_path: Path, method: str) -> None:
    """If the editor listens, the port through which a child connects to it resets their connections, too."""
    port = free_port()
    async with family(relay, tmp_path, port, method) as job, tunnels(relay) as client:
        async with (
            listening_editor(port, tmp_path / "program.py", BREAKPOINT, subProcess=True) as editor,
            Forwarder(client, [port], may_reverse=True),
        ):
            await editor.attached
            await try_while_a_child_is_debugged(editor.client, job, tmp_path, expected=1)
        deadline = time.monotonic() + DEADLINE
        while family_ports(job.process.pid, tmp_path / "node"):
            assert time.monotonic() < deadline, "the port to the editor is still open"
            await asyncio.sleep(0.05)


async def try_while_a_child_is_debugged(editor: DapClient, job: Program, directory: Path, *, expected: int) -> None:
    """Connect as another user before the attach to the child that the editor is offered, during it, and after it."""
    child = (await editor.wait_for_event("debugpyAttach", within=DEADLINE))["body"]
    await try_as_stranger(job, directory, expected=expected)
    async with await attached(child, directory) as session:
        stopped = await session.wait_for_event("stopped", within=DEADLINE)
        await try_as_stranger(job, directory, expected=expected)
        await session.request("continue", {"threadId": stopped["body"]["threadId"]}, within=DEADLINE)
        await session.wait_for_event("terminated", within=DEADLINE)
    await job.line("child ended")
    await try_as_stranger(job, directory, expected=expected)


@contextlib.asynccontextmanager
async def family(relay: LocalRelay, directory: Path, port: int, method: str) -> AsyncIterator[Program]:
    """Run the program, which starts its child when an editor has attached."""
    script = directory / "program.py"
    script.write_text(PROGRAM)
    async with running_job(relay, script, "--port", str(port), arguments=[method]) as job:
        yield job


def tunnels(relay: LocalRelay) -> Tunnels:
    return Tunnels(relay.endpoint, relay.sender, relay.tls)


@contextlib.asynccontextmanager
async def client_of(relay: LocalRelay, port: int) -> AsyncIterator[None]:
    async with tunnels(relay) as client, Forwarder(client, [port]):
        yield


async def attached(child: Message, directory: Path) -> DapClient:
    """Attach to a child that debugpy has announced."""
    client = await DapClient.connect("127.0.0.1", child["connect"]["port"], within=DEADLINE)
    breakpoints = {str(directory / "program.py"): [{"line": BREAKPOINT}]}
    await client.attach(breakpoints, within=DEADLINE, subProcessId=child["subProcessId"])
    return client


async def try_as_stranger(job: Program, directory: Path, *, expected: int) -> None:
    """Connect to every port of the job, its children, its debugger and its agent as another user; none may answer.

    Args:
        job: The parent.
        directory: With the directory of the node.
        expected: Number of ports.
    """
    ports = family_ports(job.process.pid, directory / "node")
    assert expected == len(ports), ports
    for port in ports:
        for request in "Content-Length: 2\r\n\r\n{}", CHILD.decode():
            assert "" == await connecting_stranger(port, request)


def family_ports(job: int, node: Path) -> set[int]:
    """Return the ports on which a job, its children, its agent, and what they are connected to, listen."""
    members = [*_with_children(job), *(member for agent in agents_on(node) for member in _with_children(agent.pid))]
    connections = [found for member in members for found in _connections(member)]
    dialled = {found.raddr.port for found in connections if found.raddr}
    listeners = [found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN]
    pids = {member.pid for member in members} | {found.pid for found in listeners if found.laddr.port in dialled}
    return {found.laddr.port for found in listeners if found.pid in pids and found.pid != psutil.Process().pid}


def _with_children(pid: int) -> list[psutil.Process]:
    """Return a process and all below it; none if it has just ended, as the one that starts an agent does."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _connections(process: psutil.Process) -> list[Any]:
    """Return the connections of a process; none if it has just ended, as a child may have."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.net_connections("tcp")
    return []

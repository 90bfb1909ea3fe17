"""Facts about machines that run out of something: the programs report it, lose nothing else, and recover."""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from relay_client.dap import DapClient
from relay_core.compat import timeout
from relay_core.dap.framing import encode
from tests.support.debuggers.armed import adapter, armed
from tests.support.jobs.faults import FAULTS, STATUS, Fault, alone_and_observed, can_mount
from tests.support.jobs.processes import job
from tests.support.jobs.running import access
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import crowd_of_strangers, needs_second_user
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, program
from tests.support.machine.streams import echo, local_server
from tests.support.network.fleet import who_serves
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

SPARE = 12
"""Descriptors that a program gets beside those that it has open."""
MORE = 40
"""Connections: many more than that."""
INITIALIZE = encode({"seq": 1, "type": "request", "command": "initialize"}).decode()


@contextlib.asynccontextmanager
async def ends(
    relay: LocalRelay, directory: Path, port: int, target: int, *options: str, **variables: str
) -> AsyncIterator[tuple[Program, Program]]:
    """Run the agent and the client of one port; yields both programs."""
    serve = ["serve", "--hc", HC, "--port", f"{port}:{target}"]
    async with program("relay_agent", *serve, env=access(relay, directory, "listen")) as agent:
        await agent.line("listening on")
        async with program(
            *("relay_client", "--hc", HC, "--ports", str(port), *options),
            env=access(relay, directory, "send") | variables,
        ) as client:
            await client.line("ready on")
            yield agent, client


def limit_descriptors(running: Program) -> None:
    """Leave a running program only a few more descriptors."""
    process = psutil.Process(running.process.pid)
    _, hard = process.rlimit(resource.RLIMIT_NOFILE)
    process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + SPARE, hard))


@pytest.mark.parametrize("exhausted", ["agent", "client"])
async def test_descriptors_run_out(relay: LocalRelay, tmp_path: Path, exhausted: str) -> None:
    """An open connection is unaffected, the cause is logged, and later connections work again."""
    port = free_port()
    async with local_server(echo) as (target, _), ends(relay, tmp_path, port, target) as (agent, client):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"before\n")
        assert b"before\n" == await asyncio.wait_for(reader.readline(), DEADLINE)
        limit_descriptors(agent if exhausted == "agent" else client)
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MORE)]
        for _, each in crowd:
            each.write(b"?\n")
        await (agent if exhausted == "agent" else client).line("no file descriptors left")
        writer.write(b"meanwhile\n")
        assert b"meanwhile\n" == await asyncio.wait_for(reader.readline(), DEADLINE)
        for _, each in crowd:
            each.close()
        async with timeout(DEADLINE):
            while "again?" != await who_serves(port, b"again?\n"):
                await asyncio.sleep(0.1)
        writer.close()


@needs_second_user
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("with_page", [False, True])
async def test_other_users_cannot_use_up_descriptors(
    relay: LocalRelay, tmp_path: Path, loop: str, *, with_page: bool
) -> None:
    """However many connections another user opens to a port or to the page, none is answered, and the owner's are."""
    port, page = free_port(), free_port() if with_page else 0
    async with (
        local_server(echo) as (target, _),
        ends(relay, tmp_path, port, target, *(["--ui", str(page)] if page else []), RELAY_EVENT_LOOP=loop) as (
            _,
            client,
        ),
    ):
        assert "before" == await who_serves(port, b"before\n")
        limit_descriptors(client)
        assert "" == await crowd_of_strangers(port, "secret\n", idle_port=page)
        assert "after" == await who_serves(port, b"after\n")


@needs_second_user
async def test_other_users_of_an_adapter_without_descriptors() -> None:
    """While it has no descriptors, debugpy's adapter answers no other user; after that, it answers its own user."""
    async with job(armed("print(port, flush=True); sys.stdin.readline()")) as running:
        port = int(await running.line())
        process = psutil.Process(adapter(port))
        limits = process.rlimit(resource.RLIMIT_NOFILE)
        process.rlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        assert "" == await crowd_of_strangers(port, INITIALIZE)
        process.rlimit(resource.RLIMIT_NOFILE, limits)
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_job_without_resources(relay: LocalRelay, tmp_path: Path, fault: Fault) -> None:
    """A job that lacks something writes the same and ends with the same status as without relay-agent."""
    if fault.needs_disk and not can_mount():
        pytest.skip("this user cannot mount a disk")
    alone, observed = await alone_and_observed(fault, relay, tmp_path)
    assert alone.status == STATUS, alone.stderr
    assert (alone.status, alone.stdout) == (observed.status, observed.stdout), observed.stderr
    assert "Traceback" not in observed.stderr
    assert fault.logged in observed.stderr

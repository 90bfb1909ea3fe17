"""Facts about `relay-client --reuse`, run as the task of an editor runs it."""

import asyncio
import socket
from pathlib import Path

import pytest

from tests.support.jobs.running import access, running_client
from tests.support.machine.ports import consecutive_ports, free_port, until_closed
from tests.support.machine.programs import Finished, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e


async def start_again(relay: LocalRelay, directory: Path, *options: str) -> Finished:
    """Run a relay-client that cannot run for long, because another one has one of its ports."""
    return await run("relay_client", "--hc", HC, "--no-listen", *options, env=access(relay, directory, "send"))


async def test_ports_that_are_open(relay: LocalRelay, tmp_path: Path) -> None:
    """With --reuse, a relay-client whose ports another one has open is ready at once, and succeeds."""
    ports, forward = consecutive_ports(3), free_port()
    async with running_client(
        relay, tmp_path, "--ports", f"{ports[0]}-{ports[2]}", "--forward", str(forward)
    ) as client:
        finished = await start_again(
            *(relay, tmp_path, "--reuse", "--ports", f"{ports[0]}-{ports[1]}", "--forward", str(forward))
        )
        assert 0 == finished.status, finished.stderr
        starting, *_, ready = finished.stderr.splitlines()
        assert starting.endswith(" relay-client: starting")
        opened = f"relay-client: ready: relay-client (pid {client.process.pid}) has opened ports "
        assert opened in ready


async def test_ports_that_are_missing(relay: LocalRelay, tmp_path: Path) -> None:
    """With --reuse, a relay-client that has one of the ports opens the others, which `release` does not close."""
    ports = consecutive_ports(2)
    all_ranks = free_port()
    options = ("--reuse", "--ports", f"{ports[0]}-{ports[1]}", "--all-ranks", str(all_ranks))
    async with running_client(relay, tmp_path, "--ports", str(ports[0])) as client:
        finished = await start_again(relay, tmp_path, *options)
        assert 0 == finished.status, finished.stderr
        assert f"ready: relay-client (pid {client.process.pid}) has opened ports " in finished.stderr
        await client.line("at the request of another program")
        for port in (*ports, all_ranks):
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()


async def test_a_missing_port_that_another_program_uses(relay: LocalRelay, tmp_path: Path) -> None:
    """If the running relay-client cannot open a port, it opens none, and the error names that port."""
    ports = consecutive_ports(3)
    with socket.create_server(("127.0.0.1", ports[2])):
        async with running_client(relay, tmp_path, "--no-listen", "--ports", str(ports[0])):
            finished = await start_again(relay, tmp_path, "--reuse", "--ports", f"{ports[0]}-{ports[2]}")
            assert 8 == finished.status, finished.stderr
            assert f"port {ports[2]} on this machine is in use" in finished.stderr
            await until_closed(ports[1])


async def test_ports_that_are_in_use(relay: LocalRelay, tmp_path: Path) -> None:
    """Without --reuse, or with another destination, a port in use is an error as ever."""
    ports = consecutive_ports(2)
    async with running_client(relay, tmp_path, "--ports", str(ports[0])):
        for options in (
            ["--ports", str(ports[0])],
            ["--reuse", "--forward", str(ports[0])],
        ):
            finished = await start_again(relay, tmp_path, *options)
            assert 8 == finished.status, finished.stderr
            assert f"port {ports[0]} on this machine is in use by another relay-client" in finished.stderr
            assert finished.stderr.endswith("relay-client: failed\n")

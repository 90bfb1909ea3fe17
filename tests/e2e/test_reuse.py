"""Facts about `relay-client --reuse`, run as the task of an editor runs it."""

from pathlib import Path

import pytest

from tests.support.ports import consecutive_ports, free_port
from tests.support.programs import Finished, run
from tests.support.relay import HC, LocalRelay
from tests.support.run_job import access, running_client

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
        opened = f"relay-client: ready: relay-client (pid {client.process.pid}) has already opened ports "
        assert opened in ready


async def test_ports_that_are_in_use(relay: LocalRelay, tmp_path: Path) -> None:
    """Without --reuse, or for more or other ports than are open, a port in use is an error as ever."""
    ports = consecutive_ports(2)
    async with running_client(relay, tmp_path, "--ports", str(ports[0])):
        for options in (
            ["--ports", str(ports[0])],
            ["--reuse", "--ports", f"{ports[0]}-{ports[1]}"],
            ["--reuse", "--forward", str(ports[0])],
        ):
            finished = await start_again(relay, tmp_path, *options)
            assert 8 == finished.status, finished.stderr
            assert f"port {ports[0]} on this machine is in use by another relay-client" in finished.stderr
            assert finished.stderr.endswith("relay-client: failed\n")

"""Facts about relay-client while it keeps local ports open, run as users run it."""

import contextlib
import time
from base64 import b64encode
from pathlib import Path

import pytest

from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run, stop
from tests.support.machine.screen import client_on, screen
from tests.support.network.fleet import KEY, node_of
from tests.support.network.relay import LocalRelay, local_relay

pytestmark = pytest.mark.e2e

FOUND_WITHIN = DEADLINE / 6
"""Seconds: 15 on an idle machine, where a search every 4 s takes less, and one every 30 s usually more."""


@pytest.fixture
def env(relay: LocalRelay) -> dict[str, str]:
    """The environment of a client of these agents."""
    access = f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
    return {"RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file)}


@pytest.mark.parametrize("command", [["--ports"], ["attach", "3", "--port"]])
async def test_idle_exit(command: list[str], env: dict[str, str]) -> None:
    """Without an editor for the given time, relay-client exits with status 0, and the last line states the reason."""
    finished = await run("relay_client", "--idle-exit", "0.5", *command, str(free_port()), env=env)
    assert 0 == finished.status, finished.stderr
    assert finished.stderr.endswith("exiting: no editor has been connected for 0.5 s (--idle-exit)\n")


async def test_idle_exit_needs_a_time() -> None:
    """A time of 0 would end the relay-client before an editor can connect."""
    finished = await run("relay_client", "--ports", "5678", "--idle-exit", "0")
    assert (2, True) == (finished.status, "--idle-exit: invalid duration: '0'" in finished.stderr)


async def test_ui(env: dict[str, str]) -> None:
    """The link of the page is printed for the terminal, and its token does not reach the log."""
    async with program("relay_client", "--ui", env=env) as client:
        printed = await client.line("page (this link works once): http://127.0.0.1:")
        await client.line("ready on 127.0.0.1, without forwarded ports: ")
        token = printed.strip().partition("#")[2]
        assert token
        assert token not in (await run("relay_client", "logs", env=env)).stdout
        await stop(client)


async def test_ui_of_a_client_that_cannot_start(env: dict[str, str]) -> None:
    """Without its ports, relay-client exits and prints no link, because the page would be gone."""
    port = free_port()
    async with program("relay_client", "--ports", str(port), env=env) as client:
        await client.line("ready on")
        finished = await run("relay_client", "--ui", "--ports", str(port), env=env)
    assert (8, False) == (finished.status, "page (this link" in finished.stderr)


async def test_ui_without_ports(relay: LocalRelay, env: dict[str, str]) -> None:
    """With --ui alone, the line of a crash has the command that opens the rank's port."""
    port = free_port()
    async with (
        node_of(relay, port, fields={"host": "node-1"}, rank=3, state="running") as node,
        program("relay_client", "--ui", env=env) as client,
    ):
        await client.line("ready on")
        node.change(port, state="crashed", detail="ValueError: no")
        await client.line("rank 3 on node-1 crashed: ValueError: no; to attach, run 'relay-client attach 3'")


async def test_job_that_begins_later(tls_directory: Path) -> None:
    """It is found within seconds without an editor; the log states once that it is over, and that the relay is away."""
    port = free_port()
    async with contextlib.AsyncExitStack() as stack, contextlib.AsyncExitStack() as serving:
        relay = await serving.enter_async_context(local_relay(tls_directory))
        access = f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
        env = {"RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file)}
        client = await stack.enter_async_context(program("relay_client", "--verbose", "--ports", str(port), env=env))
        await client.line("searched for agents: ")
        for _ in range(2):
            begun = time.monotonic()
            async with node_of(relay, port, fields={"host": "node-1"}, rank=3, state="running"):
                await client.line("rank 3 ")
                assert time.monotonic() - begun < FOUND_WITHIN
            await client.line("no agent is listening on 'myhc' (namespace localhost); waiting for a job")
        await serving.aclose()
        for _ in range(3):
            await client.line("searched for agents: cannot connect to")
        await stop(client)
        assert 1 == client.stderr.count("warning: cannot reach the relay: cannot connect to ")


async def test_two_clients_cannot_have_one_port(relay: LocalRelay, env: dict[str, str], tmp_path: Path) -> None:
    """A second relay-client, also with a directory of its own, logs who has the port and how to stop that program."""
    port = free_port()
    env = {**env, "USER": "alice", "LOGNAME": "alice"}
    async with program("relay_client", "--ports", str(port), env=env) as client:
        await client.line("ready on")
        other = {**env, "RELAY_CLIENT_DIR": str(tmp_path / "other")}
        finished = await run("relay_client", "--listen", "--ports", str(port), env=other)
        assert 8 == finished.status
        pid = client.process.pid
        assert f"in use by another relay-client (pid {pid}, user alice, since " in finished.stderr
        assert (
            f" hint: if 'relay-client status' lists it, 'relay-client stop --client {pid}' stops it; otherwise, choose "
            "other ports with --ports" in finished.stderr
        )
        assert 0 == (await run("relay_client", "stop", "--client", str(pid), env=env)).status


async def test_a_crash_rings_the_bell_of_a_terminal(relay: LocalRelay, env: dict[str, str]) -> None:
    """On a terminal, the bell rings for a user who is looking elsewhere; a log file gets no control codes."""
    port = free_port()
    async with (
        node_of(relay, port, fields={"host": "node-1"}, rank=3, state="running") as node,
        screen() as (shown, descriptor),
        program("relay_client", "--ports", str(port), env=env) as piped,
        client_on(descriptor, env, "--ports", str(free_port())),
    ):
        await piped.line("ready on")
        await shown.until("ready on")
        node.change(port, state="crashed", detail="ValueError: no", until=time.time() + 605)
        await shown.until(
            "rank 3 on node-1 crashed: ValueError: no; to attach, run 'relay-client attach 3' within 10 min"
        )
        await shown.until("\a")
        await piped.line(f"rank 3 on node-1 crashed: ValueError: no; press F5 to attach to port {port} within 10 min")
        assert "\a" not in (await stop(piped)).stderr

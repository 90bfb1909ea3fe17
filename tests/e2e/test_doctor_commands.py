"""Facts about the commands `relay-client doctor` and `relay-agent doctor`, run as users run them."""

import json
from base64 import b64encode
from pathlib import Path

import pytest

from tests.support.machine.ports import free_port
from tests.support.machine.programs import run
from tests.support.network.fleet import KEY, node_of
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.e2e


def environment(relay: LocalRelay, rule: str) -> dict[str, str]:
    access = f"{relay.connection_string(rule)};TunnelKey={b64encode(KEY).decode()}"
    return {"RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file)}


async def test_the_client_prints_a_table(relay: LocalRelay, tmp_path: Path) -> None:
    """With a running job, no check fails, the status is 0, and stderr is empty."""
    port = free_port()
    async with node_of(relay, port, rank=0):
        finished = await run("relay_client", "doctor", "--folder", str(tmp_path), env=environment(relay, "send"))
    assert (0, "") == (finished.status, finished.stderr)
    heading, *rows = finished.stdout.splitlines()
    assert ["check", "result", "time", "finding"] == heading.split()
    assert f"rank 0 on port {port}" in finished.stdout
    assert [] == [row for row in rows if " fail " in row]


async def test_the_client_prints_json_and_the_code_of_the_failure(relay: LocalRelay, tmp_path: Path) -> None:
    """Without an agent, the exit status is that of a missing listener, in the JSON too."""
    finished = await run("relay_client", "doctor", "--json", "--folder", str(tmp_path), env=environment(relay, "send"))
    found = json.loads(finished.stdout)
    assert (9, 9, "") == (finished.status, found["exit_code"], finished.stderr)
    (failed,) = [each for each in found["checks"] if each["status"] == "fail"]
    assert ("listener", 9) == (failed["check"], failed["exit_code"])


async def test_a_different_key_is_reported_once(relay: LocalRelay, tmp_path: Path) -> None:
    """The failure is in the table only: no warning precedes it."""
    access = f"{relay.connection_string('send')};TunnelKey={b64encode(b'x' * 32).decode()}"
    env = environment(relay, "send") | {"RELAY_CONNECTION_STRING": access}
    async with node_of(relay, free_port(), rank=0):
        finished = await run("relay_client", "doctor", "--folder", str(tmp_path), env=env)
    assert (3, "") == (finished.status, finished.stderr)
    assert 1 == finished.stdout.count("client and agent have different tunnel keys")


async def test_ports_and_ranks_are_lists(relay: LocalRelay) -> None:
    """A malformed list is an error of the command line."""
    finished = await run("relay_client", "doctor", "--ports", "many", env=environment(relay, "send"))
    assert 2 == finished.status
    assert "--ports" in finished.stderr


async def test_the_agent_prints_a_table(relay: LocalRelay) -> None:
    """A node that can listen passes every check."""
    finished = await run("relay_agent", "doctor", env=environment(relay, "listen"))
    assert (0, "") == (finished.status, finished.stderr)
    assert "the relay accepts the token for listening" in finished.stdout


async def test_the_agent_prints_json(relay: LocalRelay) -> None:
    """A key without the right fails with the code of a refusal."""
    finished = await run("relay_agent", "doctor", "--json", env=environment(relay, "send"))
    found = json.loads(finished.stdout)
    assert (4, 4) == (finished.status, found["exit_code"])


async def test_the_agent_explains_credentials(relay: LocalRelay) -> None:
    """`--explain-auth` works as with the other commands."""
    finished = await run("relay_agent", "doctor", "--explain-auth", env=environment(relay, "listen"))
    assert 0 == finished.status
    assert "RELAY_CONNECTION_STRING" in finished.stdout

"""Facts about what the commands say and how they end when something is wrong."""

import signal
import socket
from importlib.metadata import version
from pathlib import Path

import pytest

from relay_core.hyco.sas import mint
from tests.support.machine import secrets
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Finished, program, run
from tests.support.network.relay import LocalRelay, local_relay

pytestmark = pytest.mark.e2e


def assert_one_sentence(finished: Finished, program_name: str, status: int, *parts: str) -> None:
    """Assert that a program ended with one error line that has all parts, a hint, and no traceback."""
    errors = [line for line in finished.stderr.splitlines() if line.startswith(f"{program_name}: error: ")]
    assert len(errors) == 1, finished.stderr
    for part in (*parts, "hint: "):
        assert part in errors[0]
    assert "Traceback" not in finished.stderr
    assert status == finished.status


@pytest.fixture
def good(relay: LocalRelay) -> dict[str, str]:
    """The environment of a client that is set up well."""
    return {"RELAY_CONNECTION_STRING": relay.connection_string("send"), "RELAY_CA_FILE": str(relay.ca_file)}


@pytest.mark.parametrize(
    ("ports", "part"),
    [
        ("5680-5678", "is in reverse order"),
        ("80-70000", "outside 1-65535"),
        ("abc", "invalid list of ports"),
        ("", "invalid list of ports"),
    ],
)
async def test_nonsense_ports(ports: str, part: str) -> None:
    """Bad --ports end with exit code 2 before anything else is looked at."""
    assert_one_sentence(await run("relay_client", "--ports", ports), "relay-client", 2, part)


async def test_a_wrong_key(relay: LocalRelay, good: dict[str, str]) -> None:
    """A wrong key ends the client with exit code 4, before an editor connects."""
    wrong = good["RELAY_CONNECTION_STRING"].replace(relay.send_key, secrets.new_key())
    finished = await run("relay_client", "--ports", str(free_port()), env={**good, "RELAY_CONNECTION_STRING": wrong})
    assert_one_sentence(finished, "relay-client", 4, "refused the credentials for 'myhc'", "Send right")


async def test_a_wrong_key_on_the_agents_side(relay: LocalRelay, good: dict[str, str]) -> None:
    """A wrong key ends the agent with exit code 4."""
    wrong = relay.connection_string("listen").replace(relay.listen_key, secrets.new_key())
    finished = await run("relay_agent", "serve", "--port", "5678", env={**good, "RELAY_CONNECTION_STRING": wrong})
    assert_one_sentence(finished, "relay-agent", 4, "refused the credentials for 'myhc'", "Listen right")


async def test_an_expired_token(relay: LocalRelay, good: dict[str, str]) -> None:
    """An expired token ends the client with exit code 4 and speaks of the clock."""
    token = mint(relay.endpoint.audience, key_name="send", key=relay.send_key, expires_at=1600000000)
    text = f"Endpoint=sb://localhost:{relay.server.port};EntityPath=myhc;SharedAccessSignature={token}"
    finished = await run("relay_client", "--ports", str(free_port()), env={**good, "RELAY_CONNECTION_STRING": text})
    assert_one_sentence(finished, "relay-client", 4, "expired", "clock")


async def test_an_unknown_hybrid_connection(relay: LocalRelay, good: dict[str, str]) -> None:
    """A typing error in --hc ends the client with exit code 5 and names the command that creates one."""
    text = relay.connection_string("send", hc=None)
    env = {**good, "RELAY_CONNECTION_STRING": text}
    finished = await run("relay_client", "--hc", "typo", "--ports", str(free_port()), env=env)
    assert_one_sentence(finished, "relay-client", 5, "no hybrid connection 'typo'", "az relay hyco create")


async def test_a_relay_that_is_down(tls_directory: Path) -> None:
    """A relay that does not answer ends the client with exit code 6."""
    async with local_relay(tls_directory) as relay:
        env = {"RELAY_CONNECTION_STRING": relay.connection_string("send"), "RELAY_CA_FILE": str(relay.ca_file)}
    finished = await run("relay_client", "--ports", str(free_port()), env=env)
    assert_one_sentence(finished, "relay-client", 6, "connection refused", "check that the relay is running")


async def test_an_untrusted_certificate(good: dict[str, str]) -> None:
    """A relay whose CA is unknown ends the client with exit code 7 and names the option."""
    del good["RELAY_CA_FILE"]
    finished = await run("relay_client", "--ports", str(free_port()), env=good)
    assert_one_sentence(finished, "relay-client", 7, "is not trusted", "--ca-file")


async def test_a_port_in_use(good: dict[str, str]) -> None:
    """A local port that is taken, and not by an editor, ends the client with exit code 8 and is named."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        finished = await run("relay_client", "--ports", str(port), "--no-listen", env=good)
    assert_one_sentence(finished, "relay-client", 8, f"port {port} on this machine is in use")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Endpoint=sb://x;SharedAccessKeyName=k", "has no SharedAccessKey"),
        ("not a connection string", "unknown or malformed field"),
        ("Endpoint=sb://localhost", "no hybrid connection given"),
    ],
)
@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("relay_client", "relay-client", ["--ports", "5678"]),
        ("relay_agent", "relay-agent", ["serve", "--port", "5678"]),
    ],
)
async def test_a_malformed_connection_string(
    module: str, name: str, arguments: list[str], text: str, part: str
) -> None:
    """A connection string that cannot be read ends both programs with exit code 3."""
    assert_one_sentence(await run(module, *arguments, env={"RELAY_CONNECTION_STRING": text}), name, 3, part)


async def test_no_connection_string_at_all() -> None:
    """Without configuration, the client's error names where a connection string can come from."""
    finished = await run("relay_client", "--ports", "5678")
    assert_one_sentence(finished, "relay-client", 3, "no connection string", "RELAY_CONNECTION_STRING_FILE")


@pytest.mark.parametrize(
    ("option", "is_default"), [(["--json"], True), (["--ui"], False), (["--forward", "6006"], False)]
)
async def test_the_default_port(option: list[str], is_default: bool) -> None:
    """Without a port, the client uses the port that a job has by default, and logs it; the page alone needs none."""
    finished = await run("relay_client", *option)
    assert 3 == finished.status, finished.stderr  # before a port is opened, because no connection string is configured
    assert is_default == ("relay-client: no --ports: using 5678, the default port of a job\n" in finished.stderr)


async def test_a_connection_string_on_the_command_line_warns(relay: LocalRelay, good: dict[str, str]) -> None:
    """--connection-string works and warns, without repeating the key."""
    text = good.pop("RELAY_CONNECTION_STRING")
    arguments = ["--ports", str(free_port()), "--connection-string", text]
    async with program("relay_client", *arguments, env=good) as client:
        await client.line("relay-client: warning: --connection-string exposes the key")
        await client.line("relay-client: ready")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_client_stops_on_request(good: dict[str, str], number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end the client with exit code 0 and without a traceback."""
    async with program("relay_client", "--ports", str(free_port()), env=good) as client:
        await client.line("relay-client: ready")
        client.process.send_signal(number)
        finished = await client.finish()
    assert finished.status == 0
    assert "Traceback" not in finished.stderr


async def test_an_agent_stops_on_request(relay: LocalRelay, good: dict[str, str]) -> None:
    """SIGTERM ends the agent with exit code 0, and the relay has no listener any more."""
    env = {**good, "RELAY_CONNECTION_STRING": relay.connection_string("listen")}
    async with program("relay_agent", "serve", "--port", "5678", env=env) as agent:
        await agent.line("relay-agent: listening on 'myhc'")
        agent.process.terminate()
        assert (await agent.finish()).status == 0
    assert 0 == relay.server.metrics().active_listeners


async def test_an_agent_waits_for_a_relay_that_is_down(tls_directory: Path) -> None:
    """An agent logs once that the relay cannot be reached, and listens as soon as it is there."""
    async with local_relay(tls_directory) as relay:
        env = {"RELAY_CONNECTION_STRING": relay.connection_string("listen"), "RELAY_CA_FILE": str(relay.ca_file)}
        await relay.server.stop()
        async with program("relay_agent", "serve", "--port", "5678", env=env) as agent:
            await agent.line("not listening, retrying")
            await relay.server.start()
            await agent.line("listening on 'myhc'")
            assert 1 == agent.stderr.count("retrying")


@pytest.mark.parametrize("module", ["relay_client", "relay_agent", "relay_server"])
async def test_help_needs_nothing(module: str) -> None:
    """--help works without any configuration."""
    finished = await run(module, "--help")
    assert finished.status == 0
    assert "usage: relay-" in finished.stdout


@pytest.mark.parametrize("module", ["relay_client", "relay_agent", "relay_server"])
async def test_the_version(module: str) -> None:
    """--version prints the version of the installed package, without any configuration."""
    finished = await run(module, "--version")
    assert (0, "") == (finished.status, finished.stderr)
    assert f"{module.replace('_', '-')} {version('relay-debug')}\n" == finished.stdout


@pytest.mark.parametrize(
    ("line", "usage", "error"),
    [
        ("relay_client --prots 5678", "relay-client [options]", "no such option: --prots. hint: did you mean --ports?"),
        ("relay_client target", "relay-client [options]", "no such command: 'target'. hint: did you mean 'targets'?"),
        ("relay_client 5678", "relay-client [options]", "no such command: '5678'. hint: did you mean --ports 5678?"),
        ("relay_client 5678-5681", "relay-client [options]", "'5678-5681'. hint: did you mean --ports 5678-5681?"),
        (
            "relay_agent 5678",
            "relay-agent ",
            "no such command: '5678'. hint: run 'relay-agent --help' to list the commands",
        ),
        ("relay_client wait --rnaks 1", "relay-client wait ", "no such option: --rnaks. hint: did you mean --ranks?"),
        ("relay_client pdb 1 2", "relay-client pdb ", "unexpected argument: '2'"),
        ("relay_agent rnu -- true", "relay-agent ", "no such command: 'rnu'. hint: run 'relay-agent --help' to list"),
        ("relay_agent run --debug-wiat 5", "relay-agent run ", "--debug-wiat. hint: did you mean --debug-wait?"),
        (
            "relay_server serve --confg x",
            "relay-server serve ",
            "--confg. hint: did you mean --config?",
        ),
    ],
)
async def test_a_misspelt_word_is_a_usage_error(line: str, usage: str, error: str) -> None:
    """A typing error ends with exit code 2, the usage of the command, and one line with the word that was meant."""
    module, *arguments = line.split()
    finished = await run(module, *arguments)
    assert 2 == finished.status
    assert finished.stderr.startswith(f"usage: {usage}")
    assert error in finished.stderr.splitlines()[-1]

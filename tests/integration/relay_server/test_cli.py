"""The command, run as users run it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from relay_core.hyco import ConnectionString, mint
from relay_core.program.run import VARIABLE
from relay_server.cli import main
from tests.integration.relay_server.waiting import eventually
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.raw_websocket import (
    CLOSE,
    TEXT,
    RawWebSocket,
    Target,
    finish_websocket,
    open_websocket,
    refused,
    start_websocket,
)

COMMAND = [sys.executable, "-m", "relay_server"]
LISTEN = "/$hc/myhc?sb-hc-action=listen"
NEW_KEY = "a-new-key-of-the-agent-xxxxxxxxxxxxx"


def run(*arguments):
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE, check=False
    )


@pytest.fixture
def home(tmp_path):
    """A directory made by `relay-server init`, with a free port."""
    main(["init", str(tmp_path / "relay"), "--hc", "myhc", "--hc", "other"])
    return tmp_path / "relay"


class Served:
    """A running `relay-server serve`."""

    def __init__(self, home: Path, *arguments: str, prefix: Sequence[str] = ()) -> None:
        self.home = home
        self.ready_file = home / "ready.json"
        command = [*COMMAND, "--config", str(home / "relay.toml"), "--port", "0", "--ready-file", str(self.ready_file)]
        self.process = subprocess.Popen([*prefix, *command, *arguments], stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []

    def wait_for(self, text: str) -> str:
        """Read event lines until one has `text`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"the command ended without {text!r}: {self.lines}")

    def target(self) -> Target:
        facts = json.loads(self.ready_file.read_text())
        return Target(facts["port"], Path(facts["ca_file"]))

    def finish(self) -> int:
        """Read the rest and return the exit status."""
        assert self.process.stderr is not None
        self.lines += self.process.stderr.readlines()
        return self.process.wait(DEADLINE)


@pytest.fixture
def uvloop_wanted(monkeypatch):
    """Let programs use uvloop, even in a run of the tests with asyncio's event loop."""
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def served(request, home):
    process = Served(home, *getattr(request, "param", ()))
    try:
        process.wait_for("ready on wss://localhost:")
        yield process
    finally:
        process.process.kill()
        process.process.wait()
        process.process.stderr.close()


def authorization(home: Path, who: str) -> list[tuple[str, str]]:
    parsed = ConnectionString.parse((home / f"myhc.{who}.connection").read_text())
    expires_at = int(time.time()) + 600
    token = mint(parsed.endpoint().audience, key_name=parsed.key_name, key=parsed.key, expires_at=expires_at)
    return [("ServiceBusAuthorization", token)]


async def listen(served: Served) -> RawWebSocket:
    return await open_websocket(served.target(), LISTEN, authorization(served.home, "agent"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_runs_in_uvloop(uvloop_wanted, served):
    """relay-server has loaded uvloop, which is installed with the client."""
    assert "/uvloop/" in Path(f"/proc/{served.process.pid}/maps").read_text()


async def test_a_changed_configuration_is_used(served):
    """A key that changes in the file, or SIGHUP, reloads the configuration of a running relay."""
    file, agent = served.home / "relay.toml", served.home / "myhc.agent.connection"
    async with await listen(served):
        old = ConnectionString.parse(agent.read_text()).key
        file.write_text(file.read_text().replace(old, NEW_KEY))
        served.wait_for("configuration reloaded")
        refusal = await refused(served.target(), LISTEN, authorization(served.home, "agent"))
        assert 401 == refusal.status
        agent.write_text(agent.read_text().replace(old, NEW_KEY))
        async with await listen(served):
            served.process.send_signal(signal.SIGHUP)
            served.wait_for("configuration reloaded")
        assert not any("disconnected" in line for line in served.lines)


async def test_what_init_writes_works_and_ends_in_order(served):
    """Agent and client meet with their connection strings, and SIGTERM ends everything with 1001 and status 0."""
    async with await listen(served) as control:
        sender = await start_websocket(served.target(), "/$hc/myhc", authorization(served.home, "client"))
        async with sender:
            address = json.loads((await control.read_message())[1])["accept"]["address"]
            async with await open_websocket(served.target(), address[address.index("/$hc/") :]) as listener:
                await finish_websocket(sender)
                await sender.send(TEXT, b"hello")
                assert (TEXT, b"hello") == await listener.read_message()
                served.process.send_signal(signal.SIGTERM)
                for websocket in (control, sender, listener):
                    close = await websocket.read_frame()
                    assert (CLOSE, 1001) == (close.opcode, close.code)
                    await websocket.send_close(1001)
    assert 0 == served.finish()
    assert not served.ready_file.exists()
    log = "".join(served.lines)
    for event in (
        "listener connected on 'myhc'",
        "relaying ",
        "listener disconnected on 'myhc'",
        "export RELAY_CA_FILE=",
    ):
        assert event in log
    for file in served.home.glob("*.connection"):
        parsed = ConnectionString.parse(file.read_text())
        assert parsed.key not in log
    assert "sb-hc-secret" not in log
    assert all(line.startswith("relay-server: ") for line in served.lines)


async def test_a_second_signal_ends_at_once(served):
    """A stop that waits for a deaf listener is cut short by a second signal, with status 130."""
    async with await listen(served):
        served.wait_for("listener connected")
        served.process.send_signal(signal.SIGINT)
        served.wait_for("stopping")
        served.process.send_signal(signal.SIGINT)
        assert 130 == served.finish()


def test_a_port_in_use_ends_with_8(home):
    """The error names the port and how to see who has it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--config", home / "relay.toml", "--port", port)
    assert 8 == done.returncode
    assert f"relay-server: error: port {port} on 127.0.0.1 is in use" in done.stderr
    assert "Traceback" not in done.stderr


def descriptor_limit(process: subprocess.Popen[str]) -> int:
    """Return the soft limit of open descriptors of a process."""
    lines = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Max open files"))
    return int(line.split()[3])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_descriptor_limit_is_raised(home):
    """The soft limit of descriptors is raised to the hard one, if that is below what a relay can use."""
    served = Served(home, prefix=["bash", "-c", 'ulimit -Sn 100 && ulimit -Hn 900 && exec "$@"', "bash"])
    try:
        served.wait_for("ready on ")
        assert 900 == descriptor_limit(served.process)
    finally:
        served.process.kill()
        served.process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of descriptors")
async def test_exhausted_descriptors_cost_the_oldest_stranger(home):
    """If no descriptor is left, connections that have proved nothing are dropped, and a listener still gets in."""
    served = Served(home, prefix=["bash", "-c", 'ulimit -n 60 && exec "$@"', "bash"])
    try:
        served.wait_for("ready on ")
        target = served.target()
        strangers: list[socket.socket] = []
        try:
            strangers.extend(socket.create_connection(("127.0.0.1", target.port)) for _ in range(150))
            async with await listen(served):
                pass
        finally:
            for stranger in strangers:
                stranger.close()
    finally:
        served.process.kill()
        served.process.communicate()


@pytest.mark.parametrize(
    "text", ["[relay]\nprot = 1\n", "no toml", '[tls]\ncertificate = "missing.pem"\nkey = "missing.key"\n']
)
def test_a_bad_configuration_ends_with_3(tmp_path, text):
    """The line names the file, and nothing else is printed."""
    file = tmp_path / "relay.toml"
    file.write_text(text)
    file.chmod(0o600)
    done = run("--config", file)
    assert (3, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("relay-server: error: ")
    assert str(tmp_path) in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_a_missing_configuration_ends_with_3(tmp_path):
    """The hint is the command that makes one."""
    done = run("serve", "--config", tmp_path / "relay.toml")
    assert (3, True) == (done.returncode, "relay-server init" in done.stderr)


def test_a_ready_file_that_cannot_be_written_ends_with_3(home):
    """Scripts learn at once that their file will not come."""
    done = run("--config", home / "relay.toml", "--port", "0", "--ready-file", home / "missing" / "ready.json")
    assert (3, True) == (done.returncode, "ready.json" in done.stderr)


async def test_listener_selection_can_be_ignored(home):
    """A sender that allows no listener meets one all the same."""
    served = Served(home, "--ignore-listener-selection")
    try:
        served.wait_for("ready on wss://localhost:")
        async with await listen(served) as control:
            nobody = ("Microsoft-Relay-AllowedListeners", "00000000-0000-0000-0000-000000000000")
            headers = [*authorization(home, "client"), nobody]
            async with await start_websocket(served.target(), "/$hc/myhc", headers):
                assert "accept" in json.loads((await control.read_message())[1])
    finally:
        served.process.kill()
        served.finish()
        served.process.stderr.close()


@pytest.mark.parametrize("arguments", [[], ["dance"], ["serve"], ["init", "x"], ["serve", "--log-format", "mars"]])
def test_a_wrong_command_line_ends_with_2(arguments):
    """Argparse explains."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert 2 == caught.value.code


def test_init_prints_the_next_commands_and_no_key(tmp_path, capfd):
    """The commands can be copied, and keys stay in their files."""
    directory = tmp_path / "my relay"
    assert 0 == main(["init", str(directory), "--hc", "myhc"])
    printed = capfd.readouterr().out
    for command in ("serve --config", "export RELAY_CA_FILE=", "myhc.agent.connection", "myhc.client.connection"):
        assert command in printed
    assert "move these files to the machines that use them: with their tunnel key, " in printed
    for file in directory.glob("*.connection"):
        assert ConnectionString.parse(file.read_text()).key not in printed


def test_init_refuses_to_overwrite(home):
    """A second init ends with 3 and changes nothing."""
    before = (home / "relay.toml").read_bytes()
    done = run("init", home, "--hc", "myhc")
    assert (3, True) == (done.returncode, "already exists" in done.stderr)
    assert before == (home / "relay.toml").read_bytes()


@pytest.mark.parametrize("port", ["0", "65536"])
def test_init_needs_a_port_that_clients_can_dial(tmp_path, port):
    """Port 0 would make connection strings that lead nowhere."""
    done = run("init", tmp_path, "--hc", "x", "--port", port)
    assert (2, True) == (done.returncode, f"argument --port: invalid port: '{port}'" in done.stderr)


async def test_a_listener_s_end_is_an_event_line(served):
    """Listeners that connect and disconnect are logged, one line each."""
    control = await listen(served)
    served.wait_for("listener connected on 'myhc'")
    await control.close()
    line = served.wait_for("listener disconnected on 'myhc'")
    assert "Traceback" not in line
    os.kill(served.process.pid, signal.SIGTERM)
    await eventually(lambda: served.process.poll() is not None)
    assert 0 == served.process.returncode


def test_status_of_a_running_relay(home):
    """`status` reads the management port that the configuration names, as text and as JSON."""
    configuration = home / "relay.toml"
    assert 3 == run("status", "--config", configuration).returncode
    port = free_port()
    configuration.write_text(configuration.read_text() + f"\n[management]\nport = {port}\n")
    nobody = run("status", "--config", configuration)
    assert 6 == nobody.returncode
    assert f"no relay answers at http://127.0.0.1:{port}: " in nobody.stderr
    process = Served(home)
    try:
        process.wait_for("ready on")
        shown = run("status", "--config", configuration)
        assert (0, "  myhc  listeners: 0") == (shown.returncode, shown.stdout.splitlines()[-2])
        status = json.loads(run("status", "--config", configuration, "--json").stdout)
        assert {"myhc": 0, "other": 0} == status["hybrid_connections"]
    finally:
        process.process.terminate()
        process.finish()
        process.process.stderr.close()


def test_status_of_another_program(home):
    """An answer that is not a relay's is an error."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        configuration = home / "relay.toml"
        configuration.write_text(f"{configuration.read_text()}\n[management]\nport = {other.getsockname()[1]}\n")

        def answer() -> None:
            connection = other.accept()[0]
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=answer)
        thread.start()
        found = run("status", "--config", configuration)
        thread.join()
    assert (13, True) == (found.returncode, "another program answers" in found.stderr)


def test_log_as_json(home):
    """With `--log-format json`, each event is a JSON object, and none contains a key."""
    process = Served(home, "--log-format", "json")
    try:
        process.wait_for("ready on")
    finally:
        process.process.terminate()
        status = process.finish()
        process.process.stderr.close()
    messages = [json.loads(line)["message"] for line in process.lines]
    waits_for = "stopping: waiting up to 5 s for connections to close (0 open); a second Ctrl-C exits immediately"
    assert (0, waits_for) == (status, messages[-1])
    keys = re.findall(r'_key = "(.*)"', (home / "relay.toml").read_text())
    assert keys
    assert not [key for key in keys if any(key in line for line in process.lines)]

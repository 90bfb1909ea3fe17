"""Facts about the commands that direct a running relay-client, run as users run them."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import psutil
import pytest

from relay_client.cli.running import results
from relay_client.control.client import running_clients
from relay_client.control.messages import GetStatus
from relay_core.errors import ConnectionLost
from tests.support.debuggers.debuggee import LINE, PROGRAM, stopped_at_breakpoint
from tests.support.jobs.processes import suspend
from tests.support.jobs.running import access, running_client, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, environment, program, run
from tests.support.network.fleet import DAP_START, KEY, node_of, who_serves
from tests.support.network.relay import HC, LocalRelay, local_relay

pytestmark = pytest.mark.e2e

SUSPENDED = "hint: it may be suspended (Ctrl-Z): enter fg in its terminal, or end it\n"
COMMANDS = (["status"], ["logs"], ["release", "3"], ["group"], ["events"], ["stop"])


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    """The environment of a terminal without credentials: only the relay-clients of this test run there."""
    return {"RELAY_CLIENT_DIR": str(tmp_path / "own")}


@pytest.fixture
def env(relay: LocalRelay, here: dict[str, str]) -> dict[str, str]:
    """The environment of a relay-client of these agents."""
    connection_string = f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
    return {**here, "RELAY_CONNECTION_STRING": connection_string, "RELAY_CA_FILE": str(relay.ca_file)}


async def as_json(*arguments: str, env: dict[str, str]) -> Any:
    finished = await run("relay_client", *arguments, "--json", env=env)
    assert finished.status == 0, finished.stderr
    return json.loads(finished.stdout)


async def json_line(running: Program) -> Any:
    return json.loads(await asyncio.wait_for(running.process.stdout.readline(), DEADLINE))


@pytest.mark.parametrize("arguments", COMMANDS)
async def test_none_is_running(arguments: list[str], here: dict[str, str]) -> None:
    """Each command reports it in one line, with exit code 15."""
    finished = await run("relay_client", *arguments, env=here)
    assert (15, "") == (finished.status, finished.stdout)
    hint = "to start one, run: "
    if arguments[0] == "release":
        hint = (
            "if 'relay-client pdb' holds the rank, enter q there; otherwise, run 'relay-client --hc NAME pdb 3', and "
        )
    assert f"relay-client: error: no relay-client is running. hint: {hint}" in finished.stderr


@pytest.mark.parametrize(("arguments", "command"), [(["status"], "--ports 5678"), (["release", "3"], "pdb 3")])
async def test_a_hint_names_the_hybrid_connection(arguments: list[str], command: str, env: dict[str, str]) -> None:
    """It has no placeholder if the connection string names the hybrid connection."""
    finished = await run("relay_client", *arguments, env=env)
    assert (15, True) == (finished.status, f"relay-client --hc {HC} {command}" in finished.stderr)


async def test_events_of_the_program_itself(relay: LocalRelay, env: dict[str, str], here: dict[str, str]) -> None:
    """--json prints the same lines as `relay-client events`; with --quiet, a log file has only warnings, with times."""
    port = free_port()
    async with (
        node_of(relay, port, fields={"host": "node-1"}, rank=3, state="running") as node,
        program("relay_client", "--json", "--quiet", "--ports", str(port), env=env) as client,
    ):
        kinds = {"opened", "connected", "state"}
        first = [await json_line(client) for _ in kinds]
        assert kinds == {event["event"] for event in first}
        async with program("relay_client", "events", env=here) as watcher:
            await watcher.line("waiting for events")
            node.change(port, state="crashed", detail="ValueError: 1")
            assert await json_line(watcher) == await json_line(client)
        client.process.send_signal(signal.SIGINT)
        finished = await client.finish()
    assert 0 == finished.status
    lines = finished.stderr.splitlines()
    assert [] == [line for line in lines if not re.fullmatch(r"[0-9-]{10} [0-9:]{8} relay-client: warning: .*", line)]
    assert any("crashed: ValueError: 1;" in line for line in lines)


async def test_status(relay: LocalRelay, env: dict[str, str], here: dict[str, str]) -> None:
    """Another terminal, without credentials, shows the relay-client, its ports, the nodes and ranks."""
    port = free_port()
    async with (
        node_of(relay, port, fields={"host": "node-1"}, rank=3, state="running"),
        program("relay_client", "--ports", str(port), env=env) as client,
    ):
        await client.line("ready on")
        finished = await run("relay_client", "status", env=here)
        assert 0 == finished.status
        heading, *lines = finished.stdout.splitlines()
        assert f"(pid {client.process.pid}, forward) on 'myhc' in localhost:{relay.server.port}, since " in heading
        assert f"  127.0.0.1:{port}" == lines[0]
        assert lines[1].startswith("  node-1: connect")
        assert [f"    rank 3, port {port}, running"] == lines[2:]
        (status,) = await as_json("status", env=here)
        assert (HC, [port]) == (status["client"]["hc"], [each["port"] for each in status["ports"]])
        assert 3 == status["nodes"][0]["targets"][0]["rank"]


async def test_stopped_at(relay: LocalRelay, tmp_path: Path, here: dict[str, str]) -> None:
    """Events and status show the file and line at which a real debugger has stopped the rank, and when it continues."""
    script, port = tmp_path / "counting.py", free_port()
    script.write_text(PROGRAM)
    client_env = {**access(relay, tmp_path, "send"), **here}
    async with (
        running_job(relay, script, "--port", str(port)) as job,
        program("relay_client", "--hc", HC, "--ports", str(port), env=client_env) as client,
    ):
        await job.line("listening on 'myhc'")
        await client.line("ready on")
        async with (
            stopped_at_breakpoint(port, script) as session,
            program("relay_client", "events", "--only", "stopped", "--only", "continued", env=here) as events,
        ):
            await events.line("waiting for events")
            await session.run(script, LINE)
            await session.client.wait_for_event("stopped", within=DEADLINE)
            await session.frame()
            while ("breakpoint", LINE) != ((event := await json_line(events)).get("reason"), event.get("line")):
                assert event["event"] in {"stopped", "continued"}
            assert str(script) == event["file"]
            assert f" is stopped at counting.py:{LINE} (breakpoint)" in event["text"]
            assert (
                f", stopped at counting.py:{LINE} (breakpoint) for "
                in (await run("relay_client", "status", env=here)).stdout
            )
            assert LINE + 1 == await session.step()
            while (event := await json_line(events)).get("line") != LINE + 1:
                pass
            await session.run(script)
            assert "continued" == (await json_line(events))["event"]
        status = (await run("relay_client", "status", env=here)).stdout
        assert "stopped" not in status


async def test_attach_through_the_running_client(relay: LocalRelay, env: dict[str, str], here: dict[str, str]) -> None:
    """The port is opened there, the command ends, and release closes it again."""
    port, other = free_port(), free_port()
    async with (
        node_of(relay, port, name="rank", fields={"host": "node-1"}, rank=3, dap_only=True) as node,
        program("relay_client", "--ports", str(other), env=env) as client,
    ):
        await client.line("ready on")
        finished = await run("relay_client", "attach", "3", env=here)
        assert 0 == finished.status, finished.stderr
        assert f"rank 3 on node-1: attach to 127.0.0.1:{port} (relay-client " in finished.stdout
        assert f", pid {client.process.pid})" in finished.stdout
        assert 1 == node.processes[port].woken
        attached = await as_json("attach", "--rank", "3", env=env)
        assert (port, False) == (attached["local_port"], attached["is_new"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(DAP_START)
        await reader.readline()
        finished = await run("relay_client", "release", "3", env=here)
        assert "rank 3 is released: 1 connection closed\n" == finished.stdout
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), DEADLINE)
        writer.close()
        finished = await run("relay_client", "release", "3", env=here)
        assert (18, True) == (finished.status, "no debugger is attached to rank 3" in finished.stderr)


async def test_attach_to_a_rank_that_is_not_there(relay: LocalRelay, env: dict[str, str], here: dict[str, str]) -> None:
    """A command that waits for a rank states this at once, with the registered ranks; Ctrl-C ends it with a failure."""
    port = free_port()
    async with (
        node_of(relay, port, rank=0, dap_only=True),
        program("relay_client", "--ports", str(free_port()), env=env) as client,
    ):
        await client.line("ready on")
        async with program("relay_client", "attach", "9", env=here) as attaching:
            await attaching.line("waiting up to 10 min for rank 9; registered: rank 0; press Ctrl-C to stop")
            attaching.process.send_signal(signal.SIGINT)
            assert 130 == (await attaching.finish()).status
        finished = await run("relay_client", "attach", "9", "--timeout", "1", env=here)
        assert (14, True) == (finished.status, "error: rank 9 did not register within 1 s" in finished.stderr)
        finished = await run("relay_client", "attach", str(port), env=here)
        hint = f"hint: use a registered rank: 0; {port} is the port of rank 0\n"
        assert (9, f"no process has rank {port}. {hint}") == (finished.status, finished.stderr.partition("error: ")[2])
        last = free_port()
        async with program("relay_client", "attach", "1", env=here) as attaching:
            await attaching.line("for rank 1; registered: rank 0; press")
            async with node_of(relay, last, name="other", rank=1, dap_only=True):
                assert f"attach to 127.0.0.1:{last} " in (await attaching.finish()).stdout


async def test_rank_of_a_node_that_is_away(relay: LocalRelay, env: dict[str, str], here: dict[str, str]) -> None:
    """Commands that wait for a known rank show that the tunnel to its node is reconnecting, and why."""
    port = free_port()
    async with (
        node_of(relay, port, fields={"host": "node-1"}, rank=0),
        program("relay_client", "--ports", str(port), env=env) as client,
    ):
        await client.line("ready on")
        await relay.server.stop()
        await client.line("reconnecting")
        try:
            waited = await run("relay_client", "wait", "--ranks", "0", "--timeout", "2", env=here)
            attached = await run("relay_client", "attach", "0", "--timeout", "2", env=here)
            alone = await run("relay_client", "pdb", "0", "--timeout", "2", env=env)
        finally:
            await relay.server.start()
    away = "the tunnel to node-1 is reconnecting: "
    assert f"waiting for rank 0 to register: {away}" in waited.stderr
    assert f"error: rank 0 did not register within 2 s: {away}" in waited.stderr
    assert "waiting up to 2 s for rank 0: the tunnel to node-1/" in attached.stderr
    assert " is reconnecting (since " in attached.stderr
    assert "error: rank 0 did not register within 2 s: cannot connect to localhost:" in alone.stderr


@pytest.mark.parametrize("is_running", [True, False])
async def test_wait_for_one_of_two_jobs(
    relay: LocalRelay, env: dict[str, str], here: dict[str, str], *, is_running: bool
) -> None:
    """The ports distinguish two ranks 0, whether a running relay-client answers or the command searches itself."""
    crashed, running = free_port(), free_port()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(node_of(relay, crashed, rank=0, state="crashed"))
        await stack.enter_async_context(node_of(relay, running, rank=0, state="running"))
        if is_running:
            client = await stack.enter_async_context(program("relay_client", "--ports", str(running), env=env))
            await client.line("ready on")
        wait = ("wait", "--ranks", "0", "--state", "crashed")
        found = await run("relay_client", *wait, "--ports", str(crashed), env=here if is_running else env)
        assert 0 == found.status, found.stderr
        missed = await run("relay_client", *wait, "--ports", str(running), "--timeout", "2", env=env)
        assert 14 == missed.status, missed.stderr
    assert "invalid list of ports" in (await run("relay_client", *wait, "--ports", "x", env=env)).stderr


async def test_attach_on_another_hybrid_connection(relay: LocalRelay, env: dict[str, str], tls_directory: Path) -> None:
    """A relay-client of another relay is not used: the command forwards the port, as without one."""
    port = free_port()
    async with (
        local_relay(tls_directory) as elsewhere,
        node_of(relay, port, name="rank", rank=3, dap_only=True),
    ):
        other = f"{elsewhere.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
        async with program(
            "relay_client", "--ports", str(free_port()), env={**env, "RELAY_CONNECTION_STRING": other}
        ) as client:
            await client.line("ready on")
            async with program("relay_client", "attach", "3", "--json", env=env) as attaching:
                attached = await json_line(attaching)
                assert (3, port, None) == (attached["rank"], attached["local_port"], attached["client"])
                assert f"rank:{port}" == await who_serves(port, DAP_START)
                attaching.process.send_signal(signal.SIGINT)
                assert 0 == (await attaching.finish()).status


async def test_attach_without_a_rank() -> None:
    """It is exit code 2, with an example."""
    finished = await run("relay_client", "attach")
    assert (2, True) == (
        finished.status,
        "no rank given. hint: give one, as in 'relay-client attach 3'" in finished.stderr,
    )


async def test_logs(env: dict[str, str], here: dict[str, str]) -> None:
    """The log can be read in another terminal, and followed until the relay-client ends."""
    async with program("relay_client", "--ports", str(free_port()), env=env) as client:
        await client.line("ready on")
        finished = await run("relay_client", "logs", env=here)
        assert (0, 1) == (finished.status, finished.stdout.count(" ready on 127.0.0.1, port "))
        async with program("relay_client", "logs", "--follow", "--json", "--lines", "1", env=here) as following:
            first = await json_line(following)
            assert ("info", True) == (first["level"], first["text"].startswith("ready on"))
            assert 0 == (await run("relay_client", "stop", env=here)).status
            assert 0 == (await following.finish()).status
    finished = await run("relay_client", "logs", "--lines", "-1")
    assert (2, True) == (finished.status, "invalid number of lines: '-1'" in finished.stderr)


async def test_several_relay_clients(env: dict[str, str], here: dict[str, str]) -> None:
    """All are shown; one is chosen by its id, process id or hybrid connection; stop asks which one."""
    async with (
        program("relay_client", "--ports", str(free_port()), env=env) as first,
        program("relay_client", "--ports", str(free_port()), env=env) as second,
    ):
        for client in (first, second):
            await client.line("ready on")
        found = [status["client"] for status in await as_json("status", env=here)]
        assert {first.process.pid, second.process.pid} == {client["pid"] for client in found}
        assert 2 == len(await as_json("status", "--client", HC, env=here))
        for name in (found[0]["id"], str(found[0]["pid"])):
            assert [found[0]] == [status["client"] for status in await as_json("status", "--client", name, env=here)]
        finished = await run("relay_client", "stop", env=here)
        assert (2, True) == (finished.status, "2 relay-clients are running: " in finished.stderr)
        finished = await run("relay_client", "status", "--client", "nobody", env=here)
        assert (15, True) == (finished.status, "'nobody' is running. hint: run 'relay-client" in finished.stderr)
        assert 2 == len(await as_json("stop", "--all", env=here))
        for client in (first, second):
            finished = await client.finish()
            assert 0 == finished.status
            assert 1 == finished.stderr.count(
                "relay-client: stopping at the request of another program, such as 'relay-client stop': closing "
            )


async def test_stop_returns_after_the_exit(env: dict[str, str], here: dict[str, str], tmp_path: Path) -> None:
    """A relay-client that needs a second after its last connection has been closed has exited when `stop` returns."""
    slow = tmp_path / "slow"
    slow.mkdir()
    delay = "import atexit, sys, time; atexit.register(lambda: time.sleep('--ports' in sys.argv))"
    (slow / "sitecustomize.py").write_text(delay)
    path = os.pathsep.join([str(slow), os.environ.get("PYTHONPATH", "")])
    async with program("relay_client", "--ports", str(free_port()), env={**env, "PYTHONPATH": path}) as client:
        await client.line("ready on")
        process = psutil.Process(client.process.pid)
        assert 0 == (await run("relay_client", "stop", env=here)).status
        assert not process.is_running()


def files(env: dict[str, str]) -> list[Path]:
    """Return the files of control sockets."""
    return list(Path(env["RELAY_CLIENT_DIR"]).glob("control-*"))


async def test_a_killed_relay_client_is_forgotten(env: dict[str, str], here: dict[str, str]) -> None:
    """The next command removes its file, and finds nobody."""
    async with program("relay_client", "--ports", str(free_port()), env=env) as client:
        await client.line("ready on")
        assert [".sock"] == [path.suffix for path in files(here)]
        client.process.kill()
        await client.process.wait()
        assert 15 == (await run("relay_client", "status", env=here)).status
        assert [] == files(here)


async def test_a_relay_client_that_exits_in_the_meantime(
    env: dict[str, str], here: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of the others count; without any, the reason is an error."""
    monkeypatch.setenv("RELAY_CLIENT_DIR", here["RELAY_CLIENT_DIR"])
    ports = [free_port(), free_port()]
    async with (
        program("relay_client", "--hc", HC, "--ports", str(ports[0]), env=env) as one,
        program("relay_client", "--hc", HC, "--ports", str(ports[1]), env=env) as other,
    ):
        for client in (one, other):
            await client.line("ready on")
        async with running_clients() as clients:
            for ended, client in enumerate(clients, 1):
                os.kill(client.about.pid, signal.SIGKILL)
                await client.until_closed()
                if ended < len(clients):
                    (status,) = await results(clients, GetStatus(), ConnectionLost, stops_at_first=False)
                    assert clients[-1].about == status.client
            with pytest.raises(ConnectionLost, match="the relay-client has exited"):
                await results(clients, GetStatus(), ConnectionLost, stops_at_first=False)


async def test_a_relay_client_that_is_suspended_during_a_command(
    relay: LocalRelay, env: dict[str, str], here: dict[str, str]
) -> None:
    """A watch that goes through it logs a warning, and continues to wait."""
    async with (
        node_of(relay, free_port(), fields={"host": "node-1"}, rank=3, state="running"),
        program("relay_client", "--ports", str(free_port()), env=env) as client,
    ):
        await client.line("ready on")
        async with program("relay_client", "hang", "--watch", "1s", env=here) as watching:
            await watching.line("checking collective operations")
            await suspend(client.process.pid)
            try:
                assert (await watching.line("a relay-client is not answering (")).endswith(SUSPENDED)
                assert watching.process.returncode is None
            finally:
                client.process.send_signal(signal.SIGCONT)


async def test_a_suspended_relay_client_holds_up_nobody(env: dict[str, str], here: dict[str, str]) -> None:
    """What is awaited is shown; it is reported after some seconds, and its file stays."""
    async with program("relay_client", "--ports", str(free_port()), env=env) as client:
        await client.line("ready on")
        await suspend(client.process.pid)
        try:
            finished = await run("relay_client", "status", env=here)
        finally:
            client.process.send_signal(signal.SIGCONT)
        awaited, error = finished.stderr.splitlines(keepends=True)
        assert 15 == finished.status
        assert awaited.startswith("relay-client: warning: waiting for a relay-client to answer (")
        assert error.startswith("relay-client: error: a relay-client is not answering (")
        assert error.endswith(SUSPENDED)
        assert 0 == (await run("relay_client", "status", env=here)).status


@pytest.mark.skipif(sys.platform != "linux", reason="opens a pipe through /proc")
async def test_a_terminal_that_takes_no_output(relay: LocalRelay, env: dict[str, str], here: dict[str, str]) -> None:
    """Nobody reads what a relay-client logs, and the pipe is full: the client still answers, and exits on request."""
    reader, writer = os.pipe()
    port = free_port()
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay_client", "--ports", str(port)), stderr=writer, env=environment(**env)
    )
    filler = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        async with node_of(relay, free_port(), fields={"host": "node-1"}, rank=3, state="running"):
            shown = b""
            while b"ready on" not in shown:
                shown += await asyncio.wait_for(asyncio.to_thread(os.read, reader, 65536), DEADLINE)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(filler, b"." * 4096)
            for command in (["attach", "3"], ["status"]):  # the first one logs a line there
                asked = await run("relay_client", *command, env=here)
                assert (0, "") == (asked.status, asked.stderr)
        client.terminate()
        assert 0 == await asyncio.wait_for(client.wait(), DEADLINE)
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
        for each in (reader, writer, filler):
            os.close(each)


async def test_release_ends_a_session_with_its_reason(relay: LocalRelay, tmp_path: Path, here: dict[str, str]) -> None:
    """The editor of a released rank is shown why its session ends, and the job runs to its end.

    The relay-client that holds the rank is found, even if it is not the first one.
    """
    script, port = tmp_path / "counting.py", free_port()
    script.write_text(PROGRAM)
    async with (
        running_job(relay, script, "--port", str(port)) as job,
        running_client(relay, tmp_path, "--ports", str(free_port()), **here),
        running_client(relay, tmp_path, "--ports", str(port), **here),
    ):
        await job.line("listening on 'myhc'")
        while (await run("relay_client", "status", "--json", env=here)).stdout.count('"rank": 0') < 2:
            pass  # each relay-client must know the rank
        with pytest.raises(ConnectionLost, match="the debug adapter closed the connection"):  # to its `disconnect`
            async with stopped_at_breakpoint(port, script) as session:
                assert 2 == (await run("relay_client", "release", env=here)).status
                released = await run("relay_client", "release", "--port", str(port), env=here)
                assert (0, f"port {port} is released: 1 connection closed\n") == (released.status, released.stdout)
                output = ""
                while "released" not in output:
                    output = (await session.client.wait_for_event("output", within=DEADLINE))["body"]["output"]
                await session.client.wait_for_event("terminated", within=DEADLINE)
        assert "the rank was released on request; the job continues without a debugger" in output
        assert 0 == (await job.finish()).status


async def test_wait_without_credentials(relay: LocalRelay, env: dict[str, str], here: dict[str, str]) -> None:
    """`wait` follows the ranks that a running relay-client knows, and ends as soon as they are in the state."""
    port = free_port()
    async with (
        node_of(relay, port, rank=2, state="running") as node,
        program("relay_client", "--ports", str(port), env=env) as client,
    ):
        await client.line("ready on")
        async with program("relay_client", "wait", "--ranks", "2", "--state", "crashed", env=here) as waiting:
            await waiting.line("waiting for rank 2 to crash; rank 2 running")
            node.change(port, state="crashed", detail="ValueError: no")
            assert (await waiting.finish()).status == 0
        late = await run("relay_client", "wait", "--ranks", "2-3", "--timeout", "0.5", env=here)
        assert (14, True) == (late.status, "error: rank 3 did not register within 0.5 s" in late.stderr)


async def test_wait_outlives_no_client(env: dict[str, str], here: dict[str, str]) -> None:
    """`wait` fails if the relay-client that it follows exits."""
    async with program("relay_client", "--ports", str(free_port()), env=env) as client:
        await client.line("ready on")
        async with program("relay_client", "wait", "--ranks", "0", env=here) as waiting:
            await waiting.line("waiting for rank 0 to register: no agent is listening on 'myhc'")
            client.process.send_signal(signal.SIGINT)
            finished = await waiting.finish()
    assert (12, True) == (finished.status, "error: the relay-client has exited" in finished.stderr)


async def test_init_without_credentials(
    relay: LocalRelay, env: dict[str, str], here: dict[str, str], tmp_path: Path
) -> None:
    """`init --from-targets` configures the ranks that a running relay-client finds, with its hybrid connection."""
    port = free_port()
    async with (
        node_of(relay, port, rank=2),
        program("relay_client", "--ports", str(port), env=env) as client,
    ):
        await client.line("ready on")
        finished = await run("relay_client", "init", "zed", "--from-targets", "--folder", str(tmp_path), env=here)
        vscode = await run("relay_client", "init", "vscode", "--from-targets", "--folder", str(tmp_path), env=here)
    assert f'"args": ["--hc", "{HC}", "--ports", "{port}", "--reuse"],' in vscode.stdout
    assert 0 == finished.status, finished.stderr
    assert f'"port": {port}' in finished.stdout

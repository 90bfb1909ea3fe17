"""Facts about relay-client's commands, run as users run them, against real agents."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from relay_agent.agent.port_targets import PortTarget
from relay_core.errors import RelayDebugError
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, program, run, stop
from tests.support.machine.screen import client_on, screen
from tests.support.network.fleet import (
    DAP_START,
    KEY,
    DiallingAgent,
    Node,
    agent,
    node_of,
    process,
    tunnels,
    who_serves,
)
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import QUICK, running_agent

pytestmark = pytest.mark.e2e


@pytest.fixture
def env(relay: LocalRelay) -> dict[str, str]:
    """The environment of a client of these agents."""
    access = f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
    return {"RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file)}


async def stdout_line(client: Program) -> str:
    return (await asyncio.wait_for(client.process.stdout.readline(), DEADLINE)).decode()


# targets


async def test_targets_lists_every_rank(relay: LocalRelay, env: dict[str, str]) -> None:
    """One row per process, of all nodes, with what it does; stdout has the table and nothing else."""
    first, second = free_port(), free_port()
    since = time.time() - 300
    about = {"pid": 44, "script": "train.py", "since": since, "state": "running"}
    async with (
        node_of(relay, first, fields={"host": "node-0", "node_rank": 0}, rank=0, **about),
        node_of(relay, second, fields={"host": "node-1", "node_rank": 1}, rank=1, **about),
    ):
        finished = await run("relay_client", "targets", env=env)
        assert finished.status == 0
        heading, *lines = finished.stdout.splitlines()
        assert ["node", "rank", "port", "pid", "script", "state", "since", "held", "by"] == heading.split()
        assert [
            ["0", "node-0", "0", str(first), "44", "train.py", "running", "5", "min"],
            ["1", "node-1", "1", str(second), "44", "train.py", "running", "5", "min"],
        ] == [line.split() for line in lines]
        assert finished.stderr == ""


async def test_targets_as_json(relay: LocalRelay, env: dict[str, str]) -> None:
    """Programs get the same as JSON; options about the relay may stand on either side of the command."""
    port = free_port()
    async with node_of(relay, port, fields={"run": "r1"}, rank=3, state="crashed", detail="ValueError: no"):
        for arguments in (["--hc", "myhc", "targets", "--json"], ["targets", "--json", "--hc", "myhc"]):
            finished = await run("relay_client", *arguments, env=env)
            (node,) = json.loads(finished.stdout)["nodes"]
            (target,) = node["targets"]
            assert ("r1", 3, port, "crashed", "ValueError: no") == (
                node["run"],
                *(target[field] for field in ("rank", "port", "state", "detail")),
            )


async def test_a_full_agent_is_waited_for(relay: LocalRelay, env: dict[str, str]) -> None:
    """Commands wait for a place, with a line about it; ports are open meanwhile."""
    port, settings = free_port(), replace(QUICK, max_sessions=1)
    async with (
        running_agent(relay, {port: PortTarget(port, port)}, tunnel_key=KEY, settings=settings),
        tunnels(relay) as other,
    ):
        await other.discover()
        full = "the agent refused the session: the agent has reached its limit of 1 sessions"
        async with program("relay_client", "targets", env=env) as targets:
            await targets.line(f"waiting, because a listener on 'myhc' cannot be used: {full}")
            async with program("relay_client", "--hc", "myhc", "--ports", str(port), env=env) as client:
                assert f"port {port}: {full}; waiting for a place (" in await client.line("ready on")
                await stop(client)
            await other.__aexit__(None, None, None)
            assert 0 == (await targets.finish()).status


async def test_targets_without_an_agent(env: dict[str, str]) -> None:
    """Nobody there is exit code 9 and the usual sentence."""
    finished = await run("relay_client", "targets", env=env)
    assert (9, "") == (finished.status, finished.stdout)
    assert "relay-client: error: no agent is listening on 'myhc'" in finished.stderr
    assert "hint: start the job with --is-debug true" in finished.stderr


async def test_targets_on_a_terminal(relay: LocalRelay, env: dict[str, str], tmp_path: Path) -> None:
    """A terminal gets a table too."""
    port = free_port()
    async with (
        node_of(relay, port, rank=3, script="train.py"),
        screen() as (shown, descriptor),
        client_on(descriptor, env, "targets") as client,
    ):
        assert 0 == await asyncio.wait_for(client.wait(), DEADLINE)
        await shown.when(lambda: len(shown.lines) == 2)
        assert ["3", str(port), "train.py"] == shown.lines[1].split()[-3:]


# wait


async def test_wait_ends_when_all_ranks_are_there(relay: LocalRelay, env: dict[str, str]) -> None:
    """`wait` ends as soon as the last rank has registered, on whichever node."""
    ports = free_port(), free_port()
    async with (
        program("relay_client", "wait", "--ranks", "0-1", "--timeout", "60", env=env) as waiting,
        node_of(relay, ports[0], rank=0),
    ):
        assert "waiting for " in await waiting.line("waiting for ")
        async with node_of(relay, ports[1], rank=1):
            assert 0 == (await waiting.finish()).status


async def test_wait_for_a_state(relay: LocalRelay, env: dict[str, str]) -> None:
    """A rank that is there in another state does not count."""
    port = free_port()
    async with (
        node_of(relay, port, rank=2, state="running") as node,
        program("relay_client", "wait", "--ranks", "2", "--state", "waiting", env=env) as waiting,
    ):
        await waiting.line("waiting for rank 2 to wait for a debugger; rank 2 running")
        node.change(port, state="waiting")
        assert 0 == (await waiting.finish()).status


async def test_wait_names_the_ranks_that_did_not_come(relay: LocalRelay, env: dict[str, str]) -> None:
    """At the end of the time there is one sentence, and exit code 14."""
    async with node_of(relay, free_port(), rank=1):
        finished = await run("relay_client", "wait", "--ranks", "0-3", "--timeout", "2", env=env)
    assert 14 == finished.status
    assert "relay-client: error: ranks 0,2-3 did not register within 2 s. hint: " in finished.stderr


async def test_wait_without_a_relay(relay: LocalRelay, env: dict[str, str]) -> None:
    """The sentence at the end of the time has the reason."""
    address = f"localhost:{relay.server.port}", f"localhost:{free_port()}"
    nowhere = {**env, "RELAY_CONNECTION_STRING": env["RELAY_CONNECTION_STRING"].replace(*address)}
    finished = await run("relay_client", "wait", "--ranks", "0", "--timeout", "2", env=nowhere)
    last = finished.stderr.splitlines()[-1]
    assert 14 == finished.status
    assert f"relay-client: error: rank 0 did not register within 2 s: cannot connect to {address[1]}" in last


async def test_wait_that_is_stopped_is_no_success(env: dict[str, str]) -> None:
    """A script must not take Ctrl-C for "all there"."""
    async with program("relay_client", "wait", "--ranks", "0", env=env) as waiting:
        await waiting.line("waiting for rank 0")
        waiting.process.send_signal(signal.SIGINT)
        assert 130 == (await waiting.finish()).status


@pytest.mark.parametrize(
    "arguments", [["--ranks", "7-0"], ["--ranks", "0", "--state", "odd"], ["--ranks", "0", "--timeout", "-1"], []]
)
async def test_nonsense_for_wait(arguments: list[str]) -> None:
    """A wrong command line is exit code 2."""
    assert 2 == (await run("relay_client", "wait", *arguments)).status


# attach


async def test_attach_wakes_a_rank_and_opens_its_port(relay: LocalRelay, env: dict[str, str]) -> None:
    """It waits for the rank, has its debugger started, names the port for F5, and forwards until Ctrl-C."""
    port = free_port()
    async with program("relay_client", "attach", "--rank", "3", env=env) as client:
        await client.line("waiting up to 10 min for rank 3: no agent is listening on")
        async with node_of(relay, port, name="rank", fields={"host": "node-1"}, rank=3, dap_only=True) as node:
            line = await client.line("press F5 to debug")
            assert f"press F5 to debug rank 3 on node-1 on port {port}" in line
            assert 1 == node.processes[port].woken
            assert f"rank:{port}" == await who_serves(port, DAP_START)
            await stop(client)


@contextlib.asynccontextmanager
async def held_rank(
    relay: LocalRelay, env: dict[str, str], port: int
) -> AsyncIterator[tuple[Program, asyncio.StreamWriter]]:
    """Run a relay-client through which a debugger holds rank 3; yield it and the debugger's connection."""
    async with (
        node_of(relay, port, name="rank", fields={"host": "node-1"}, rank=3, dap_only=True),
        program("relay_client", "--ports", str(port), env=env) as client,
    ):
        await client.line("ready on")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(DAP_START)
        await reader.readline()
        await client.line(f"rank 3 on node-1 is held by {env.get('USER', '')}")
        yield client, writer
        writer.close()
        await writer.wait_closed()


async def test_attach_to_a_rank_that_somebody_holds(relay: LocalRelay, env: dict[str, str], tmp_path: Path) -> None:
    """The line names the holder, and the port to use later, with and without a relay-client that is running."""
    port, other = free_port(), free_port()
    env = {**env, "USER": "bob", "LOGNAME": "bob"}
    async with held_rank(relay, env, port):
        alone = {**env, "RELAY_CLIENT_DIR": str(tmp_path / "alice"), "USER": "alice", "LOGNAME": "alice"}
        async with program("relay_client", "attach", "3", "--port", str(other), env=alone) as client:
            line = await client.line("rank 3 on node-1 is held by bob@")
            assert f"; press F5 to attach to port {other} once rank 3 is free (127.0.0.1:{other})" in line
            await stop(client)
        finished = await run("relay_client", "attach", "3", env=env)
        assert f"rank 3 on node-1: attach to 127.0.0.1:{port} once bob@" in finished.stdout
        assert ", who holds the rank, has disconnected (relay-client " in finished.stdout
        finished = await run("relay_client", "pdb", "--rank", "3", env=alone)
        assert 10 == finished.status
        assert "relay-client: error: rank 3 is held by bob@" in finished.stderr
        assert "ends the editor's session, for example by 'relay-client release 3'\n" in finished.stderr


@pytest.mark.parametrize("command", ["attach", "pdb"])
async def test_rank_that_is_not_there(relay: LocalRelay, env: dict[str, str], tmp_path: Path, command: str) -> None:
    """While the size of the job is unknown, both wait, show at once which ranks there are, and end at Ctrl-C."""
    alone = {**env, "RELAY_CLIENT_DIR": str(tmp_path / "own")}
    async with (
        node_of(relay, free_port(), rank=0),
        node_of(relay, free_port(), name="other", rank=1),
        program("relay_client", command, "--rank", "7", env=alone) as client,
    ):
        assert "waiting up to 10 min for rank 7; registered: rank" in await client.line("; press Ctrl-C to stop\n")
        async with node_of(relay, free_port(), name="third", rank=3):
            await client.line("for rank 7; registered: ranks 0-1,3; press")
        await client.line("for rank 7; registered: ranks 0-1; press")
        client.process.send_signal(signal.SIGINT)
        assert (130 if command == "pdb" else 0) == (await client.finish()).status


@pytest.mark.parametrize("command", ["attach", "pdb"])
async def test_port_instead_of_a_rank(relay: LocalRelay, env: dict[str, str], tmp_path: Path, command: str) -> None:
    """If the rank is the port of a registered rank, the command fails at once, and the hint has that rank."""
    alone, port = {**env, "RELAY_CLIENT_DIR": str(tmp_path / "own")}, free_port()
    async with node_of(relay, port, rank=0):
        finished = await run("relay_client", command, str(port), env=alone)
    hint = f"hint: use a registered rank: 0; {port} is the port of rank 0"
    assert (9, f"no process has rank {port}. {hint}\n") == (finished.status, finished.stderr.partition("error: ")[2])


@pytest.mark.parametrize("command", ["attach 7", "attach 0,7", "pdb 7"])
async def test_rank_that_no_process_can_have(
    relay: LocalRelay, env: dict[str, str], tmp_path: Path, command: str
) -> None:
    """A rank beyond the size of the job is refused at once, with the sentence of `stacks`."""
    alone, ports = {**env, "RELAY_CLIENT_DIR": str(tmp_path / "own")}, [free_port(), free_port()]
    async with node_of(relay, ports[0], rank=0, world=2), node_of(relay, ports[1], name="other", rank=1, world=2):
        finished = await run("relay_client", *command.split(), env=alone)
    error = "no process has rank 7. hint: use a registered rank: 0-1\n"
    assert (9, error) == (finished.status, finished.stderr.partition("error: ")[2])
    assert "press F5" not in finished.stderr


async def test_port_that_no_process_can_have(relay: LocalRelay, env: dict[str, str]) -> None:
    """A port beyond those of the job is refused at once."""
    port = free_port()
    async with node_of(relay, port, rank=0, world=2):
        finished = await run("relay_client", "pdb", "--port", str(port + 2), env=env)
    error = f"no process has port {port + 2}. hint: use a registered port: {port}\n"
    assert (9, error) == (finished.status, finished.stderr.partition("error: ")[2])


@pytest.mark.parametrize("command", [["attach", "1"], ["pdb", "1"], ["pdb", "--port", "9"]])
async def test_a_process_that_does_not_come(env: dict[str, str], command: list[str]) -> None:
    """Waiting ends when the time has passed."""
    finished = await run("relay_client", *command, "--timeout", "1", env=env)
    what = "port 9" if "--port" in command else "rank 1"
    assert 14 == finished.status
    assert f"waiting up to 1 s for {what}: no agent is listening on" in finished.stderr
    assert (
        f"error: {what} did not register within 1 s: no agent is listening on 'myhc' (namespace localhost). hint: "
        in finished.stderr
    )


async def test_attach_to_a_rank_that_does_not_come(relay: LocalRelay, env: dict[str, str]) -> None:
    """The ranks that have come stay attached when another one has not come in time."""
    port = free_port()
    async with (
        node_of(relay, port, name="a", rank=0, world=2),
        program("relay_client", "attach", "0,1", "--timeout", "2", env=env) as client,
    ):
        await client.line("warning: rank 1 did not register within 2 s")
        assert f"a:{port}" == await who_serves(port)
        await stop(client)


@pytest.mark.parametrize("command", ["attach", "pdb", "wait --state crashed --ranks"])
async def test_a_crash_that_is_found(relay: LocalRelay, env: dict[str, str], command: str) -> None:
    """Only commands that open a port for a crashed rank propose F5, and pdb does not say how else to attach."""
    crash = {"state": "crashed", "detail": "ValueError: no"}
    async with (
        node_of(relay, free_port(), fields={"host": "node-1"}, rank=3, world=4, dap_only=True, **crash),
        program("relay_client", *command.split(), "3", "--timeout", "9", env=env) as client,
    ):
        line = await client.line("rank 3 on node-1 crashed: ValueError: no")
        hint = "; to attach, run 'relay-client attach 3'" if command.startswith("wait") else ""
        assert line.endswith(f"rank 3 on node-1 crashed: ValueError: no{hint}\n")


async def test_attach_to_several_ranks_and_to_another_port(relay: LocalRelay, env: dict[str, str]) -> None:
    """--rank can be given as a list and repeatedly; --port moves the one rank that is named."""
    ports, other = [free_port(), free_port()], free_port()
    async with node_of(relay, ports[0], name="a", rank=0), node_of(relay, ports[1], name="b", rank=1):
        async with program("relay_client", "attach", "--rank", "0", "--rank", "1", env=env) as client:
            await client.line("press F5 to debug")
            await client.line("press F5 to debug")
            assert [f"a:{ports[0]}", f"b:{ports[1]}"] == [await who_serves(port) for port in ports]
            await stop(client)
        async with program("relay_client", "attach", "--rank", "1", "--port", str(other), env=env) as client:
            await client.line(f" on port {other}")
            assert f"b:{ports[1]}" == await who_serves(other)
            await stop(client)
    finished = await run("relay_client", "attach", "--rank", "0-1", "--port", str(other), env=env)
    assert 2 == finished.status
    assert "--port requires a single rank" in finished.stderr


async def test_attach_to_a_rank_that_cannot_be_debugged(relay: LocalRelay, env: dict[str, str]) -> None:
    """The node's own sentence and hint are shown."""

    async def cannot(_request: str) -> dict[str, object]:
        raise RelayDebugError("debugpy is not installed in the job", hint="pip install debugpy")

    async with node_of(relay, free_port(), rank=0) as node:
        node.answer = cannot
        finished = await run("relay_client", "attach", "--rank", "0", env=env)
    assert 1 == finished.status
    assert "relay-client: error: debugpy is not installed in the job. hint: pip install debugpy" in finished.stderr


async def test_a_rank_of_two_jobs_is_ambiguous(relay: LocalRelay, env: dict[str, str]) -> None:
    """Two jobs on one hybrid connection both have a rank 0: the error lists their ports to choose from."""
    async with Two(relay) as ports:
        finished = await run("relay_client", "attach", "--rank", "0", env=env)
    assert 2 == finished.status
    assert "rank 0 exists in 2 jobs: " in finished.stderr
    assert all(str(port) in finished.stderr for port in ports)
    assert f"hint: choose one by its port, as in 'relay-client --ports {min(ports)}'" in finished.stderr


@contextlib.asynccontextmanager
async def Two(relay: LocalRelay) -> AsyncIterator[list[int]]:  # noqa: N802 - reads as a number of jobs
    """One node with two processes of rank 0, as two jobs would have."""
    ports = [free_port(), free_port()]
    async with node_of(relay, *ports, rank=0):
        yield ports


# forwards


async def test_a_forward_needs_no_debugger_port(relay: LocalRelay, env: dict[str, str]) -> None:
    """--forward carries a port of the node to another local one."""
    remote, local = free_port(), free_port()
    async with process(remote, "tensorboard") as web:
        node = Node()
        node.forwards[remote] = web
        async with (
            agent(relay, node),
            program("relay_client", "--forward", f"{remote}:{local}", env=env) as client,
        ):
            assert f"127.0.0.1, port {local}: " in await client.line("ready on")
            assert "tensorboard" == await who_serves(local)
            await stop(client)


async def test_tensorboard_shows_its_url_when_it_is_there(relay: LocalRelay, env: dict[str, str]) -> None:
    """The URL comes once an agent forwards the port, and not before."""
    remote, local = free_port(), free_port()
    async with (
        process(remote, "tensorboard") as web,
        program("relay_client", "tensorboard", "--port", f"{remote}:{local}", env=env) as client,
    ):
        await client.line("waiting: no agent is listening on 'myhc'")
        node = Node()
        async with agent(relay, node):
            await client.line(f"waiting: no agent on 'myhc' serves port {remote}; ")
            node.forwards[remote] = web
            node.publish()
            assert f"http://127.0.0.1:{local}/\n" == await stdout_line(client)
            assert "tensorboard" == await who_serves(local)
            await stop(client)


async def test_tensorboard_does_not_wait_forever(relay: LocalRelay, env: dict[str, str]) -> None:
    """If no agent forwards the port within --timeout, the error states why, and what to do."""
    async with agent(relay, Node()):
        port = free_port()
        finished = await run("relay_client", "tensorboard", "--port", str(port), "--timeout", "5", env=env)
    assert 14 == finished.status
    error = finished.stderr.splitlines()[-1]
    assert f"error: port {port} was not available within 5 s: no agent on 'myhc' serves" in error
    assert f"hint: start the job with --debug-forward {port}, or use 'relay-agent serve " in error


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--forward", "x"], "invalid port"),
        (["--forward", "6006", "--forward", "1/6006"], "local port 6006 is used twice"),
        (["--ports", "5678", "--forward", "6006:5678"], "local port 5678 is in both --ports and --forward"),
    ],
)
async def test_nonsense_forwards(arguments: list[str], part: str) -> None:
    """Forwards that cannot be are exit code 2, before anything is connected."""
    finished = await run("relay_client", *arguments)
    assert 2 == finished.status
    assert part in finished.stderr


# The default command:


async def test_a_second_client_learns_the_holder_a_rank(relay: LocalRelay, env: dict[str, str]) -> None:
    """The line names the user and since when, and the status shows it too."""
    port, other = free_port(), free_port()
    async with held_rank(relay, env, port) as (first, writer):
        async with program("relay_client", "--forward", f"{port}:{other}", env=env) as second:
            assert "rank 3 held by " in await second.line("ready on")
            assert "" == await who_serves(other, DAP_START)
            line = await second.line("is held by ")
            assert f" relay-client: error: port {other} (to port {port}) is held by " in line
            assert re.search(r" \(since \d\d:\d\d\)", line)
        writer.close()
        await first.line("rank 3 on node-1 is free: ")


async def test_a_listening_editor_is_dialled(relay: LocalRelay, env: dict[str, str]) -> None:
    """With --listen, a port that any program of this user holds is reported as in use, and the job reaches it."""
    greeted = asyncio.Event()

    async def editor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"hello\n" == await reader.readline()
        greeted.set()
        writer.close()

    server = await asyncio.start_server(editor, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        process(port, "never") as rank,
        agent(relay, Node(rank), DiallingAgent) as dialling,
        program("relay_client", "--listen", "--ports", str(port), env=env) as client,
    ):
        await client.line(f"(pid {os.getpid()}): the job will connect to it")
        _, stream = await asyncio.wait_for(dialling.dialled.get(), DEADLINE)
        await stream.write(b"hello\n")
        await asyncio.wait_for(greeted.wait(), DEADLINE)
        await stream.close()
        await stop(client)


async def test_a_web_server_is_no_editor(env: dict[str, str]) -> None:
    """A port on which a program of this user listens that is not debugpy is an error that names the program."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1"),
        env={"PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        port = re.findall(r"port (\d+)", (await server.stdout.readline()).decode())[0]
        finished = await run("relay_client", "--ports", port, env=env)
    finally:
        server.kill()
        await server.communicate()
    assert 8 == finished.status
    assert f" -m http.server (pid {server.pid}). hint: if it is your listening editor, add --listen" in finished.stderr
    assert "ready" not in finished.stderr

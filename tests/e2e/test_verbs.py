"""Facts about commands that ask the job: through a running relay-client, and without one."""

import asyncio
import contextlib
import hashlib
import json
import re
import signal
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_core.agent_api.collectives import GroupRecord
from tests.support.jobs.running import access, running_client, running_job, running_ranks, until_registered
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports, free_port
from tests.support.machine.programs import Finished, Program, program, run, stop
from tests.support.network.collectives import node_of, operations
from tests.support.network.fleet import KEY, Node, agent
from tests.support.network.relay import HC, LocalRelay, local_relay

pytestmark = pytest.mark.e2e

SCRIPT = """\
import os
import threading
from pathlib import Path

import model

rank = int(os.environ["RELAY_RANK"])
(Path(__file__).parent / f"ready-{rank}").touch()
threading.Event().wait()
"""
AWAITED = r"relay-client: warning: waiting for the result of 'eval' from \S+/[0-9a-f]{8}\n"
QUESTIONS = (
    ["targets"],
    ["stacks"],
    ["stacks", "--ranks", "1", "--locals", "--all-threads"],
    ["stacks", "--ranks", "9"],
    ["env", "1"],
    ["env", "all"],
    ["hang"],
    ["hang", "--ports", "1"],
    ["eval", "rank * 10"],
    ["eval", "absent"],
    ["eval", "--ports", "1", "rank"],
    ["eval", "--ranks", "0", "--timeout", "20s", "rank"],
    ["diff", "rank"],
    ["eval", "--diff", "rank"],
    ["diff", "rank", "--ranks", "x"],
)


@contextlib.asynccontextmanager
async def job(relay: LocalRelay, directory: Path) -> AsyncIterator[int]:
    """Run two ranks, and return the first one's port; the block begins when a client finds them."""
    (directory / "model.py").write_text("def f():\n    return 1\n")
    script, port = directory / "train.py", consecutive_ports(2)[0]
    script.write_text(SCRIPT)
    async with running_ranks(relay, script, 2, "--port", str(port), "--debug-allow-edit"):
        yield port


def outcome(finished: Finished) -> tuple[int, str, list[str]]:
    """Return what a user sees of a command, without its warnings, and without what the time and the tunnel change."""
    shown = re.sub(r'\s*"(?:time|link|link_since|round_trip)": [^\n]*', "", finished.stdout)
    shown = re.sub(r"\b\d+ (?:s|min|h)\b| +", " ", shown)
    return finished.status, shown, [line for line in finished.stderr.splitlines() if "hint: " in line]


async def test_both_ways(relay: LocalRelay, tmp_path: Path) -> None:
    """Status, output and hints of each command are the same, and a running relay-client spares it the credentials."""
    both = [*QUESTIONS, *([*question, "--json"] for question in QUESTIONS)]
    here, alone = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}, access(relay, tmp_path, "send")
    alone["RELAY_CLIENT_DIR"] = str(tmp_path / "none")
    async with job(relay, tmp_path) as port:
        expected = [outcome(await run("relay_client", "--hc", HC, *question, env=alone)) for question in both]
        assert {0, 2, 9, 17} == {status for status, _, _ in expected}
        async with running_client(relay, tmp_path, "--ports", str(port), **here):
            for question, without in zip(both, expected, strict=True):
                assert without == outcome(await run("relay_client", *question, env=here)), question


async def test_push_both_ways(relay: LocalRelay, tmp_path: Path) -> None:
    """A push replaces the code and prints the same, through a running relay-client too; its file is a relative path."""
    here, alone = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}, access(relay, tmp_path, "send")
    alone["RELAY_CLIENT_DIR"] = str(tmp_path / "none")
    file = tmp_path / "model.py"
    async with job(relay, tmp_path) as port, running_client(relay, tmp_path, "--ports", str(port), **here):
        for number, env in ((2, alone), (3, here)):
            file.write_text(f"def f():\n    return {number}\n")
            pushed = await run("relay_client", "push", "--hc", HC, "--now", str(file), env=env)
            assert (0, "ranks 0-1: f()") == (pushed.status, pushed.stdout.splitlines()[1]), pushed
            found = await run("relay_client", "eval", "--hc", HC, "model.f()", env=env)
            assert f"ranks 0-1  {number}" == found.stdout.splitlines()[0], found
        file.write_text("def f(:\n")
        failed = [
            outcome(await run("relay_client", "push", "--hc", HC, "--now", *options, str(file), env=env))
            for env in (alone, here)
            for options in ([], ["--json"])
        ]
        assert 1 == len({(status, *hints) for status, _, hints in failed}), failed


async def test_saves_are_pushed(relay: LocalRelay, tmp_path: Path) -> None:
    """`push --watch` pushes each save through a running relay-client too, without credentials, until Ctrl-C."""
    here = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    file = tmp_path / "model.py"
    async with (
        job(relay, tmp_path) as port,
        running_client(relay, tmp_path, "--ports", str(port), **here),
        program("relay_client", "push", "--now", "--watch", str(file), env=here) as watching,
    ):
        await watching.line("press Ctrl-C to stop")
        for number in (2, 3):
            file.write_text(f"def f():\n    return {number}\n")
            assert "; ranks 0-1: f()" in await stdout_line(watching)
            found = await run("relay_client", "eval", "model.f()", env=here)
            assert f"ranks 0-1  {number}" == found.stdout.splitlines()[0], found
        await stop(watching)


@pytest.mark.parametrize("options", [[], ["--json"]])
async def test_watch_both_ways(relay: LocalRelay, tmp_path: Path, options: list[str]) -> None:
    """`hang --watch` prints each hang once, in the same words through a running relay-client, without credentials."""
    base, here = free_port(), {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    alone = {**with_key(relay), "RELAY_CLIENT_DIR": str(tmp_path / "none")}
    node = node_of(base, range(2), 2, behind=1)
    command = ("relay_client", "hang", "--watch", "1", *options)
    async with (
        agent(relay, node),
        program("relay_client", "--ports", str(free_port()), env={**with_key(relay), **here}) as client,
    ):
        await client.line("ready on")
        async with program(*command, env=here) as one, program(*command, env=alone) as other:
            for each in (one, other):
                await each.line("operations of all jobs every 0.5 s, to report those without progress for 1 s; ")
            for number in (6, 8):
                reports = [await report(each, options) for each in (one, other)]
                assert reports[0] == reports[1]
                assert f"#{number} all_reduce" in reports[0]
                enter(node, 0, number + 2, number + 1)
                enter(node, 1, number + 1, number + 1)
            for each in (one, other):
                await stop(each)


async def test_watch_continues_alone(relay: LocalRelay, tmp_path: Path) -> None:
    """If the relay-client that `hang --watch` uses exits, the command continues, and reports no hang twice."""
    base, env = free_port(), {**with_key(relay), "RELAY_CLIENT_DIR": str(tmp_path / "own")}
    node = node_of(base, range(2), 2, behind=1)
    async with (
        agent(relay, node),
        program("relay_client", "--ports", str(free_port()), env=env) as client,
    ):
        await client.line("ready on")
        async with program("relay_client", "hang", "--watch", "1", "--verbose", env=env) as watching:
            assert "#6 all_reduce" in await report(watching, [])
            await stop(client)
            await watching.line("connecting to the agents")
            enter(node, 0, 7, 6)
            assert "#7 all_reduce" in await report(watching, [])
            await stop(watching)


@pytest.mark.parametrize("uses_client", [False, True])
async def test_watch_of_the_next_job(relay: LocalRelay, tmp_path: Path, uses_client: bool) -> None:
    """`hang --watch` does not end with the job: the next one on the hybrid connection is watched too."""
    env = {**with_key(relay), "RELAY_CLIENT_DIR": str(tmp_path / "own")}
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(contextlib.AsyncExitStack())
        await first.enter_async_context(agent(relay, node_of(free_port(), range(2), 2, behind=1)))
        if uses_client:
            command = ("relay_client", "--ports", str(free_port()))
            client = await stack.enter_async_context(program(*command, env=env))
            await client.line("ready on")
        watching = await stack.enter_async_context(program("relay_client", "hang", "--watch", "1", env=env))
        assert "missing rank 1, " in await report(watching, [])
        await first.aclose()
        await stack.enter_async_context(agent(relay, node_of(free_port(), range(3), 3, behind=2)))
        assert "missing rank 2, " in await report(watching, [])
        await stop(watching)


def enter(node: Node, rank: int, entered: int, completed: int) -> None:
    """Let one of two ranks enter and complete operations."""
    group = GroupRecord("0", "default_pg", "other", (0, 1), entered, completed, operations(entered))
    node.collectives[rank] = node.collectives[rank]._replace(groups=(group,))


def with_key(relay: LocalRelay) -> dict[str, str]:
    """Return the environment of a client of the agents in this process."""
    return {
        "RELAY_CONNECTION_STRING": f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}",
        "RELAY_CA_FILE": str(relay.ca_file),
    }


async def report(watching: Program, options: list[str]) -> str:
    """Return the next report: a line, or the lines of a JSON object."""
    text = await stdout_line(watching)
    while options and not text.endswith("\n}\n"):
        text += await stdout_line(watching)
    assert not options or ["jobs"] == list(json.loads(text))
    return text


async def stdout_line(running: Program) -> str:
    """Return the next line that a program prints."""
    return (await asyncio.wait_for(running.process.stdout.readline(), DEADLINE)).decode()


async def test_interrupted_command(relay: LocalRelay, tmp_path: Path) -> None:
    """Ctrl-C of a push cancels it in the running relay-client, which performs the next one: only that is executed.

    Without an answer, the status is 130. The command shows what it waits for, and that nothing was changed.
    """
    here = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    port = consecutive_ports(2)[0]
    options = ("--port", str(port), "--debug-ranks", "none", "--debug-allow-edit")
    file, versions = tmp_path / "model.py", [f"def f():\n    return {number}\n" for number in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        jobs = []
        for rank in range(2):
            node = tmp_path / f"node-{rank}"
            node.mkdir()
            (node / "model.py").write_text(versions[0])
            (node / "train.py").write_text(SCRIPT)
            variables = {"RELAY_WORLD_SIZE": "2", "RELAY_RANK": str(rank)}
            jobs.append(
                await stack.enter_async_context(running_job(relay, node / "train.py", *options, cwd=node, **variables))
            )
            await until_registered(relay, tmp_path, rank + 1)
            if rank == 0:
                client = await stack.enter_async_context(running_client(relay, tmp_path, "--ports", str(port), **here))
                endless = ("eval", "__import__('time').sleep(1e6)", "--timeout", "1h")
                async with program("relay_client", *endless, env=here) as evaluating:
                    await jobs[0].line("evaluating an expression in")
                    awaited = await evaluating.line("waiting for")
                    assert re.fullmatch(AWAITED, awaited)
                    evaluating.process.send_signal(signal.SIGINT)
                    interrupted = await evaluating.finish()
                    assert (130, "", awaited) == (interrupted.status, interrupted.stdout, interrupted.stderr)
                file.write_text(versions[1])
                async with program("relay_client", "push", "--now", "--as", "model.py", str(file), env=here) as pushing:
                    await client.line("waiting up to 30 s for rank 1")
                    await pushing.line("waiting up to 30 s for rank 1, which is not registered")
                    pushing.process.send_signal(signal.SIGINT)
                    cancelled = await pushing.finish()
                    assert (130, "") == (cancelled.status, cancelled.stdout)
                    assert "the push was cancelled; nothing was changed in any rank\n" in cancelled.stderr
        file.write_text(versions[2])
        pushed = await run("relay_client", "push", "--now", "--as", "model.py", str(file), env=here)
        assert (0, "ranks 0-1: f()") == (pushed.status, pushed.stdout.splitlines()[1]), pushed
        digest = hashlib.sha256(versions[2].encode()).hexdigest()[:12]
        for each in jobs:
            assert f"(sha256 {digest}: f()" in await each.line("replaced the code in")


async def test_two_hybrid_connections(tmp_path: Path) -> None:
    """With relay-clients on two hybrid connections, a command without a name is a usage error that lists both."""
    here = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    async with local_relay(tmp_path / "tls", hybrid_connections=("first", "second")) as relay:
        env = {"RELAY_CONNECTION_STRING": relay.connection_string("send", hc=None), "RELAY_CA_FILE": str(relay.ca_file)}
        async with contextlib.AsyncExitStack() as stack:
            for name in ("first", "second"):
                command = ("relay_client", "--hc", name, "--ports", str(free_port()))
                client = await stack.enter_async_context(program(*command, env={**env, **here}))
                await client.line("ready on")
            choosing = {"--client": (["targets"], ["stacks"], ["hang", "--watch", "1"]), "--hc": (["attach", "0"],)}
            for option, command in ((option, each) for option, commands in choosing.items() for each in commands):
                refused = await run("relay_client", *command, env=here)
                assert (2, "") == (refused.status, refused.stdout)
                assert re.search(r"2 relay-clients are running: \w{8} \('first'\), \w{8} \('second'\)", refused.stderr)
                assert f"hint: choose one with {option}" in refused.stderr
            for choice in ("--client", "--hc"):
                chosen = await run("relay_client", "targets", choice, "second", env=here)
                assert (9, True) == (chosen.status, "no agent is listening on 'second'" in chosen.stderr), chosen


async def test_which_way(relay: LocalRelay, tmp_path: Path) -> None:
    """With --verbose, a line shows which way was taken; a relay-client of another hybrid connection is not used."""
    here = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    async with job(relay, tmp_path) as port:
        async with running_client(relay, tmp_path, "--ports", str(port), **here) as client:
            used = await run("relay_client", "stacks", "--verbose", env=here)
            assert f"(pid {client.process.pid})" in used.stderr
            other = await run("relay_client", "stacks", "--hc", "other", env=here)
            assert (True, "") == (
                "relay-client: error: no connection string is configured" in other.stderr,
                other.stdout,
            ), other
            named = await run("relay_client", "stacks", "--client", "absent", env=here)
            assert (15, "") == (named.status, named.stdout)
        own = await run(
            "relay_client", "--hc", HC, "stacks", "--verbose", env={**access(relay, tmp_path, "send"), **here}
        )
        assert "connecting to the agents" in own.stderr
        assert used.stdout == own.stdout


async def test_evaluations_are_not_repeated(relay: LocalRelay, tmp_path: Path) -> None:
    """If the relay-client is killed during an `eval`, the command fails, and the expression is executed only once."""
    env = access(relay, tmp_path, "send", RELAY_CLIENT_DIR=str(tmp_path / "own"))
    calls = tmp_path / "calls"
    calls.touch()
    expression = f"open({str(calls)!r}, 'a').write('x') and __import__('threading').Event().wait(60)"
    command = ("--hc", HC, "eval", "--ranks", "0", "--timeout", "60s", expression)
    async with job(relay, tmp_path) as port:
        async with running_client(relay, tmp_path, "--ports", str(port), **env) as client:
            asking = asyncio.create_task(run("relay_client", *command, env=env))
            while not calls.read_text():
                await asyncio.sleep(0.05)
            client.process.kill()
            finished = await asking
        assert "relay-client: error: the relay-client has exited" in finished.stderr, finished
        assert "x" == calls.read_text()


async def test_missing_ranks_are_searched_for(relay: LocalRelay, tmp_path: Path) -> None:
    """While a rank of the job is missing, a running relay-client searches for its node before it answers."""
    here = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    port = consecutive_ports(2)[0]
    options = ("--port", str(port), "--debug-ranks", "none")
    nodes = []
    for rank in range(2):
        nodes.append(tmp_path / f"node-{rank}")
        nodes[rank].mkdir()
        (nodes[rank] / "model.py").touch()
        (nodes[rank] / "train.py").write_text(SCRIPT)
    async with contextlib.AsyncExitStack() as stack:
        for rank, node in enumerate(nodes):
            variables = {"RELAY_WORLD_SIZE": "2", "RELAY_RANK": str(rank)}
            await stack.enter_async_context(running_job(relay, node / "train.py", *options, **variables))
            await until_registered(relay, tmp_path, rank + 1)
            if rank == 0:
                await stack.enter_async_context(running_client(relay, tmp_path, "--ports", str(port), **here))
            found = await run("relay_client", "eval", "rank", env=here)
            assert (rank == 0) == ("rank 1  no value: not found" in found.stdout), found

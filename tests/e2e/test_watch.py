"""Facts about watching a line of a running job: four ranks on two nodes, with an editor attached to one of them."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap import DapClient
from relay_core.compat import timeout
from tests.support.jobs.many_ranks import line_of
from tests.support.jobs.running import access, running_client, running_job, until_registered
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import Program, program, run, stop
from tests.support.network.chaos import ChaosProxy
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

TRAIN = """\
import os
import time
from pathlib import Path

rank = int(os.environ["RELAY_RANK"])


def train_step(step):
    loss = float("nan") if rank == 2 and step % 4 == 3 else step / 4

    # The watch of this line is moved to the next one.
    return loss


(Path(__file__).parent / f"ready-{rank}").write_text(str(os.getpid()))
step = 0
while True:
    train_step(step)
    step += 1
    time.sleep(0.15)  # less than ten times in a second: no value is skipped
"""
LINE = line_of(TRAIN, "return loss")
HIT = re.compile(r"\d\d:\d\d:\d\d  (ranks?) ([\d,-]+) +#[\d,-]+ *(.*)")


WATCHED = (
    "[watch.place for watch in __import__('sys').modules['relay_agent.trigger.table'].watches._watches.values() "
    "if watch.hooks]"
)
"""In a rank: the lines that it watches."""


def script_in(directory: Path) -> Path:
    """Return the script of a node."""
    directory.mkdir()
    (script := directory / "train.py").write_text(TRAIN)
    return script


def pids(directory: Path) -> dict[int, int]:
    """Return the process of each rank."""
    return {int(file.name[6:]): int(file.read_text()) for file in directory.glob("node-*/ready-*")}


@contextlib.asynccontextmanager
async def node(relay: LocalRelay, directory: Path, port: int, ranks: Sequence[int]) -> AsyncIterator[None]:
    """Run some of four ranks on a node of their own, until each of them runs."""
    script = script_in(directory)
    start = f'RELAY_WORLD_SIZE=4 RELAY_RANK=$rank {sys.executable} "$1"'
    launcher = ["sh", "-c", f"for rank in {' '.join(map(str, ranks))}; do {start} & done; wait", "sh"]
    options = ("--debug-ranks", "none", "--port", str(port))
    async with running_job(relay, script, *options, launcher=launcher, cwd=directory), timeout(DEADLINE):
        while not all((directory / f"ready-{rank}").exists() for rank in ranks):
            await asyncio.sleep(0.05)
        yield


@contextlib.asynccontextmanager
async def job(relay: LocalRelay, directory: Path) -> AsyncIterator[int]:
    """Run four ranks on two nodes, and return the first one's port; the block begins when a client finds them."""
    port = consecutive_ports(4)[0]
    async with node(relay, directory / "node-0", port, (0, 1)), node(relay, directory / "node-1", port, (2, 3)):
        await until_registered(relay, directory, 4)
        yield port


def without_client(relay: LocalRelay, directory: Path, **extra: str) -> dict[str, str]:
    """Return the environment of a command that finds no running relay-client."""
    return {**access(relay, directory, "send"), "RELAY_CLIENT_DIR": str(directory / "none"), **extra}


async def watch(*arguments: str, env: Mapping[str, str]) -> Any:
    """Run a watch to its end."""
    return await run("relay_client", "watch", "--hc", HC, *arguments, env=env)


async def next_object(watching: Program) -> Any:
    """Return the next line of stdout, which is a JSON object."""
    assert watching.process.stdout is not None
    return json.loads(await asyncio.wait_for(watching.process.stdout.readline(), DEADLINE))


async def number_of_hit(watching: Program, rank: int) -> int:
    """Return the number of the next hit of a rank, which is much higher if another process has reported it."""
    while (found := await next_object(watching))["rank"] != rank:
        assert "hit" == found["event"]
    return int(found["number"])


def values(lines: Sequence[str]) -> dict[int, list[str]]:
    """Return the values of each rank in the lines of a watch."""
    found: dict[int, list[str]] = {rank: [] for rank in range(4)}
    for line in lines:
        match = HIT.fullmatch(line)
        assert match is not None, line
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                found[rank].append(match[3])
    return found


@pytest.mark.parametrize("has_editor", [False, True])
@pytest.mark.parametrize("uses_client", [False, True])
async def test_values_of_all_ranks(relay: LocalRelay, tmp_path: Path, uses_client: bool, has_editor: bool) -> None:
    """Each hit of each rank is printed once, in order, with the value at the line; then follow a table and the cost."""
    here = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(job(relay, tmp_path))
        if uses_client or has_editor:
            await stack.enter_async_context(running_client(relay, tmp_path, "--ports", str(port), **here))
        if has_editor:
            editor = await stack.enter_async_context(await DapClient.connect("127.0.0.1", port))
            await editor.attach({}, justMyCode=False, within=DEADLINE)
        found = await watch(
            f"train.py:{LINE}",
            "step, loss",
            "--hits",
            "22",
            env=here if uses_client else without_client(relay, tmp_path),
        )
    assert 0 == found.status, found.stderr
    for rank, hits in values(found.stdout.splitlines()).items():
        steps = [int(text[1:].partition(",")[0]) for text in hits]
        assert list(range(steps[0], steps[0] + len(hits))) == steps
        losses = ["nan" if rank == 2 and step % 4 == 3 else str(step / 4) for step in steps]
        assert [f"({step}, {loss})" for step, loss in zip(steps, losses, strict=True)] == hits
    assert f"watching train.py:{LINE} in ranks 0-3, for 1 h or until Ctrl-C" in found.stderr.splitlines()
    end = found.stderr.splitlines()[-7:]
    assert ["the watch has ended (--hits 22)", "         reached  reported"] == [end[0], end[1][:26]]
    assert ["rank 0", "rank 1", "rank 2", "rank 3"] == [line[:6] for line in end[2:6]]
    assert re.fullmatch(r"cost: [\d.]+ ms of [\d.]+ s in rank \d \(.* %\)", end[6])


async def test_lost_connections(relay: LocalRelay, tmp_path: Path) -> None:
    """No hit is lost or printed twice although the connection is lost again and again; Ctrl-C ends the watch."""
    async with job(relay, tmp_path), ChaosProxy("127.0.0.1", relay.server.port) as chaos:
        (connection := tmp_path / "connection").touch(0o600)
        connection.write_text(relay.connection_string("send").replace(f":{relay.server.port}", f":{chaos.port}"))
        env = without_client(relay, tmp_path, RELAY_CONNECTION_STRING_FILE=str(connection))
        async with program("relay_client", "watch", f"train.py:{LINE}", "step", "--json", env=env) as watching:
            hits: dict[int, list[Any]] = {rank: [] for rank in range(4)}
            for number in range(60):
                found = await next_object(watching)
                hits[found["rank"]].append((found["number"], found["reached"], int(found["text"])))
                if number % 15 == 5:
                    assert chaos.cut()
            stopped = await stop(watching)
    last = json.loads(stopped.stdout.splitlines()[-1])
    for line in stopped.stdout.splitlines()[:-1]:
        found = json.loads(line)
        hits[found["rank"]].append((found["number"], found["reached"], int(found["text"])))
    for rank, found in hits.items():
        assert 5 < len(found)
        for column in zip(*found, strict=True):
            assert list(range(column[0], column[0] + len(found))) == list(column), (rank, found)
        assert 1 == found[0][1]
    assert ("ended", "the watch was stopped") == (last["event"], last["text"])
    assert [len(hits[rank]) for rank in range(4)] == [rank["hits"] for rank in last["ranks"]]


@pytest.mark.parametrize("uses_client", [False, True])
async def test_interrupted(relay: LocalRelay, tmp_path: Path, uses_client: bool) -> None:
    """Ctrl-C removes the watch from all ranks before the command ends, with status 0 and a table."""
    env = without_client(relay, tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(job(relay, tmp_path))
        if uses_client:
            await stack.enter_async_context(running_client(relay, tmp_path, "--ports", str(port), **env))
        async with program("relay_client", "watch", f"train.py:{LINE}", "loss", env=env) as watching:
            await watching.line("watching train.py")
            before = await run("relay_client", "eval", WATCHED, env=env)
            assert f"ranks 0-3  ['train_step train.py:{LINE}']" == before.stdout.splitlines()[0], before
            stopped = await stop(watching)
        assert "the watch was stopped\n" in stopped.stderr
        assert "cost: " in stopped.stderr
        after = await run("relay_client", "eval", WATCHED, env=env)
        assert "ranks 0-3  []" == after.stdout.splitlines()[0]


async def test_the_relay_client_exits(relay: LocalRelay, tmp_path: Path) -> None:
    """If the relay-client that the watch uses exits, the watch continues without it, and loses no hit."""
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(tmp_path / "own")}
    command = ("relay_client", "watch", "--hc", HC, f"train.py:{LINE}", "step", "--ranks", "0", "--json")
    async with (
        job(relay, tmp_path) as port,
        running_client(relay, tmp_path, "--ports", str(port), RELAY_CLIENT_DIR=env["RELAY_CLIENT_DIR"]) as client,
        program(*command, env=env) as watching,
    ):
        steps = [int((await next_object(watching))["text"]) for _ in range(5)]
        await stop(client)
        steps += [int((await next_object(watching))["text"]) for _ in range(20)]
        await stop(watching)
    assert list(range(steps[0], steps[0] + 25)) == steps


async def test_condition(relay: LocalRelay, tmp_path: Path) -> None:
    """`--when` reports only values for which it is true, in the ranks of `--ranks`; `--every` only some of them."""
    env = without_client(relay, tmp_path)
    async with job(relay, tmp_path):
        found = await watch(f"train.py:{LINE}", "step", "--when", "loss != loss", "--hits", "3", env=env)
        every = await watch(f"train.py:{LINE}", "step", "--every", "3", "--ranks", "1", "--hits", "3", env=env)
        never = await watch(f"train.py:{LINE}", "step", "--when", "step < 0", "--for", "1s", env=env)
    steps = [int(text) for text in values(found.stdout.splitlines())[2]]
    assert [3, 7, 11] == [step - steps[0] + 3 for step in steps]
    assert 3 == steps[0] % 4
    steps = [int(text) for text in values(every.stdout.splitlines())[1]]
    assert [steps[0], steps[0] + 3, steps[0] + 6] == steps
    assert (17, "") == (never.status, never.stdout)
    assert "the watch has ended after 1 s\n" in never.stderr


async def test_rank_that_is_held_at_a_hit(relay: LocalRelay, tmp_path: Path) -> None:
    """With `--then hold`, the rank waits before the line, once, and the command names what to do; others continue."""
    env = without_client(relay, tmp_path)
    command = ("relay_client", "watch", f"train.py:{LINE}", "step", "--when", "loss != loss", "--then", "hold")
    async with job(relay, tmp_path), program(*command, env=env) as watching:
        await watching.line("rank 2: waiting for a debugger: 'relay-client pdb 2', or F5 in the editor")
        seen = await run("relay_client", "pdb", "2", env=env, stdin=b"p step\nq\n")
        places = [line for line in seen.stdout.splitlines() if line.startswith("> ")]
        script = tmp_path / "node-1" / "train.py"
        assert [f"> {script}({LINE})train_step()"] == places, seen
        await watching.line("rank 2: the watch has ended after 1 hit")
        stopped = await stop(watching)
    assert re.search(r"rank 2 +#\d+  (\d+)\n", stopped.stdout)[1] in seen.stdout.splitlines()
    reported = [line.split()[3] for line in stopped.stderr.splitlines() if re.match(r"rank \d +\d", line)]
    assert ["0", "0", "1", "0"] == reported, stopped.stderr


async def test_moved_line(relay: LocalRelay, tmp_path: Path) -> None:
    """For a line without code, the next one is watched, with a sentence about it."""
    env = without_client(relay, tmp_path)
    async with job(relay, tmp_path):
        found = await watch(f"train.py:{LINE - 1}", "", "--hits", "8", "--ranks", "0-1", env=env)
    assert f"ranks 0-1: line {LINE - 1} has no code, so line {LINE} is watched" in found.stderr.splitlines()
    assert 8 == sum(map(len, values(found.stdout.splitlines()).values()))


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (("train.py", "loss"), 2, "error: invalid place: 'train.py'. hint: use FILE:LINE, such as train.py:88, or nan"),
        (("train.py:1", "loss", "--ranks", "x"), 2, "error: --ranks: invalid list of ranks: 'x'"),
        (("train.py:1", "loss", "--hits", "0"), 2, "error: argument --hits: invalid number: '0'"),
        (("train.py:1", "loss", "--every", "x"), 2, "error: argument --every: invalid number: 'x'"),
        (("train.py:1", "loss", "--for", "0s"), 2, "error: argument --for: invalid duration: '0s'"),
        (("train.py:1", "x" * 20000), 2, "error: the expression or the condition is longer than 16384 characters"),
    ],
)
async def test_invalid_command_lines(
    relay: LocalRelay, tmp_path: Path, arguments: Sequence[str], status: int, error: str
) -> None:
    """An invalid argument is refused in one sentence."""
    found = await watch(*arguments, env=without_client(relay, tmp_path))
    assert (status, "") == (found.status, found.stdout)
    assert error in found.stderr


async def test_what_cannot_be_watched(relay: LocalRelay, tmp_path: Path) -> None:
    """An invalid expression fails at once, with the reason; ranks that do not exist are named."""
    env = without_client(relay, tmp_path)
    async with job(relay, tmp_path):
        found = await watch(f"train.py:{LINE}", "loss +", env=env)
        assert (17, "") == (found.status, found.stdout)
        assert re.search(r"\nranks 0-3: invalid expression 'loss \+': SyntaxError", found.stderr)
        assert f"relay-client: error: no rank can watch train.py:{LINE}\n" in found.stderr
        nobody = await watch(f"train.py:{LINE}", "loss", "--ranks", "9", env=env)
        assert (9, "") == (nobody.status, nobody.stdout)
        assert "error: no process has rank 9. hint: use a registered rank: 0-3\n" in nobody.stderr
        line = await watch("train.py:900", "loss", env=env)
        assert (17, "") == (line.status, line.stdout)
        assert "ranks 0-3: train.py has no code at line 900 or after it\n" in line.stderr
        name = await watch(f"train.py:{LINE}", "los", "--hits", "2", env=env)
        assert 17 == name.status
        assert "  no value: NameError: name 'los' is not defined\n" in name.stdout
        unknown = await watch("absent.py:1", "loss", "--for", "1s", env=env)
        assert 17 == unknown.status
        note = "ranks 0-3: the file is not loaded yet; the watch begins once it is."
        assert f"{note} absent.py does not exist in the current directory either\n" in unknown.stderr


async def test_killed_and_ended(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that is killed is named, and watched again once it is restarted; the watch ends with the last rank."""
    env = without_client(relay, tmp_path)
    async with (
        job(relay, tmp_path) as port,
        program("relay_client", "watch", f"train.py:{LINE}", "step", "--json", env=env) as watching,
    ):
        await watching.line("watching train.py")
        processes, last = pids(tmp_path), await number_of_hit(watching, 3)
        os.kill(processes.pop(3), signal.SIGKILL)
        await watching.line("rank 3: was killed by SIGKILL")
        script = tmp_path / "node-1" / "train.py"
        options = ("--debug-ranks", "none", "--port", str(port))
        async with running_job(relay, script, *options, RELAY_RANK="3", RELAY_WORLD_SIZE="4"), timeout(DEADLINE):
            while (number := await number_of_hit(watching, 3)) == last + 1:  # of the killed process
                last = number
        for pid in processes.values():
            os.kill(pid, signal.SIGKILL)
        finished = await watching.finish()
    assert 0 == finished.status
    assert "all ranks have ended" == json.loads(finished.stdout.splitlines()[-1])["text"]

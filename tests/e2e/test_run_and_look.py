"""Facts about a job that `relay-agent run` made debuggable, looked at from the laptop with the real commands."""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from tests.support.jobs.running import access
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

CRASHES = """\
import time
from pathlib import Path

def train():
    step = 0
    while not Path("crash").exists():
        step += 1
        time.sleep(0.01)
    loss = "odd"
    raise ValueError(loss)

train()
"""
BREAKS = """\
import relay_agent

def train():
    for step in range(10):
        relay_agent.breakpoint(rank=3, when=step == 7)
        square = step * step
    return square

print(train())
"""


def run_arguments(script: Path, port: int, *options: str) -> list[str]:
    return ["run", "--hc", HC, "--port", str(port), *options, "--", sys.executable, str(script)]


async def test_crash_is_held_and_inspected(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that crashes is shown by targets and stacks, inspected with pdb, and ends with its own status."""
    script = tmp_path / "train.py"
    script.write_text(CRASHES.replace('"crash"', repr(str(tmp_path / "crash"))))
    port = free_port()
    arguments = run_arguments(script, port, "--debug-ranks", "none", "--debug-on-crash", "--hold", "60")
    agent = access(relay, tmp_path, "listen", RELAY_RANK="3", RELAY_WORLD_SIZE="4")
    client = access(relay, tmp_path, "send")
    async with program("relay_agent", *arguments, env=agent) as job:
        there = await run("relay_client", "--hc", HC, "wait", "--ranks", "3", "--timeout", "50", env=client)
        assert there.status == 0
        stacks = json.loads((await run("relay_client", "--hc", HC, "stacks", "--json", env=client)).stdout)
        others, crashing = stacks["groups"]
        assert (others["ranks"], others["error"]) == ([0, 1, 2], "not found")
        assert crashing["ranks"] == [3]
        assert crashing["threads"][0]["frames"][-1]["function"] == "train"
        missing = await run("relay_client", "--hc", HC, "stacks", "--ranks", "9", env=client)
        assert (9, "") == (missing.status, missing.stdout)
        assert "error: no process has rank 9. hint: use a registered rank: 3" in missing.stderr
        (tmp_path / "crash").touch()
        await job.line("crashed: ValueError: odd; held for up to 60 s; a debugger can attach on port")
        listed = json.loads((await run("relay_client", "--hc", HC, "targets", "--json", env=client)).stdout)
        (target,) = listed["nodes"][0]["targets"]
        assert (target["rank"], target["port"], target["state"]) == (3, port + 3, "crashed")
        assert target["detail"] == "ValueError: odd"
        assert 0 < target["until"] - time.time() <= 60
        stacks = json.loads((await run("relay_client", "--hc", HC, "stacks", "--json", env=client)).stdout)
        frames = stacks["groups"][-1]["threads"][0]["frames"]
        assert [frame["function"] for frame in frames][-2:] == ["<module>", "train"]
        assert frames[-1]["line"] == CRASHES.splitlines().index("    raise ValueError(loss)") + 1
        seen = await run("relay_client", "--hc", HC, "pdb", "--rank", "3", env=client, stdin=b"p loss\nq\n")
        assert seen.status == 0
        assert "'odd'" in seen.stdout
        assert "detached; rank 3 exits with its exception" in seen.stdout
        assert "continues" not in seen.stdout
        assert (await job.finish()).status == 1
    assert not (tmp_path / "node").exists()


async def test_breakpoint_waits_for_its_rank(relay: LocalRelay, tmp_path: Path) -> None:
    """`relay_agent.breakpoint` holds the chosen rank at the chosen moment, and the debugger stands at its caller."""
    script = tmp_path / "train.py"
    script.write_text(BREAKS)
    port = free_port()
    agent = access(relay, tmp_path, "listen", RELAY_RANK="3", RELAY_WORLD_SIZE="4")
    async with (
        program("relay_agent", *run_arguments(script, port, "--debug-ranks", "none"), env=agent) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port + 3]),
    ):
        await job.line("breakpoint() at train.py:5: waiting up to")
        async with await DapClient.connect("127.0.0.1", port + 3, within=DEADLINE) as dap:
            await dap.attach({}, within=DEADLINE)
            thread = (await dap.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]
            top = (await dap.request("stackTrace", {"threadId": thread}, within=DEADLINE))["stackFrames"][0]
            assert top["name"] == "train"
            arguments = {"expression": "step", "frameId": top["id"], "context": "watch"}
            assert (await dap.request("evaluate", arguments, within=DEADLINE))["result"] == "7"
            client = access(relay, tmp_path, "send")
            stacks = json.loads((await run("relay_client", "--hc", HC, "stacks", "--json", env=client)).stdout)
            frames = stacks["groups"][-1]["threads"][0]["frames"]
            assert [frame["function"] for frame in frames][-2:] == ["<module>", "train"]
            await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        finished = await asyncio.wait_for(job.finish(), DEADLINE)
        assert (finished.status, finished.stdout) == (0, "81\n")


async def test_sigtrap(relay: LocalRelay, tmp_path: Path) -> None:
    """`kill -TRAP` makes a running process wait for a debugger, which stops in the program, as often as it is sent."""
    script = tmp_path / "train.py"
    script.write_text(CRASHES.replace('"crash"', repr(str(tmp_path / "crash"))))
    port = free_port()
    environ = access(relay, tmp_path, "listen", RELAY_DEBUG_HC=HC, RELAY_DEBUG_PORT=str(port), RELAY_DEBUG="on-demand")
    async with (
        program("relay_agent", str(script), env=environ) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        await job.line("a debugger can attach")
        for _ in range(2):
            job.process.send_signal(signal.SIGTRAP)
            await job.line("SIGTRAP at train.py:")
            async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:
                await dap.attach({}, within=DEADLINE)
                thread = (await dap.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]
                top = (await dap.request("stackTrace", {"threadId": thread}, within=DEADLINE))["stackFrames"][0]
                assert str(script) == top["source"]["path"]
                job.process.send_signal(signal.SIGTRAP)  # while stopped: has no effect
                # when the process has evaluated this, it has handled the signal
                await dap.request("evaluate", {"expression": "1", "frameId": top["id"]}, within=DEADLINE)
                await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        (tmp_path / "crash").touch()
        assert (1, 2) == ((finished := await job.finish()).status, finished.stderr.count("SIGTRAP"))


@pytest.mark.parametrize("command", [("{script}",), ("-m", "train")], ids=["script", "module"])
async def test_uncaught_exceptions(relay: LocalRelay, tmp_path: Path, command: tuple[str, ...]) -> None:
    """An editor that asks for them, as VS Code does, receives none before the program of a waiting job begins."""
    script = tmp_path / "train.py"
    script.write_text("step = 7\nprint(step)\n")
    port = free_port()
    agent = access(relay, tmp_path, "listen", PYTHONPATH=str(tmp_path))
    words = [word.format(script=script) for word in command]
    async with (
        program("relay_agent", "run", "--hc", HC, "--port", str(port), "--", sys.executable, *words, env=agent) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port]),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap,
    ):
        await dap.attach({str(script): [{"line": 2}]}, exceptions=["uncaught"], justMyCode=False, within=DEADLINE)
        assert (await dap.wait_for_event("stopped", within=DEADLINE))["body"]["reason"] == "breakpoint"
        await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        assert (await asyncio.wait_for(job.finish(), DEADLINE)).stdout == "7\n"


async def test_restarted_rank(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that was killed is reached on the same port again, while its old editor's connection is still open."""
    script = tmp_path / "train.py"
    script.write_text(CRASHES)
    port = free_port()
    agent = access(relay, tmp_path, "listen", RELAY_RANK="3", RELAY_WORLD_SIZE="4")
    arguments = run_arguments(script, port, "--debug-ranks", "none")
    breakpoints = {str(script): [{"line": CRASHES.splitlines().index("        step += 1") + 1}]}
    async with (
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port + 3]),
        await DapClient.connect("127.0.0.1", port + 3, within=DEADLINE) as old,
    ):
        async with program("relay_agent", *arguments, env=agent):
            await old.attach(breakpoints, within=DEADLINE)
            await old.wait_for_event("stopped", within=DEADLINE)
        async with (
            program("relay_agent", *arguments, env=agent),
            await DapClient.connect("127.0.0.1", port + 3, within=DEADLINE) as new,
        ):
            await new.attach(breakpoints, within=DEADLINE)
            await new.wait_for_event("stopped", within=DEADLINE)
            await new.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)

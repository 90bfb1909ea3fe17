"""Facts about a crash that somebody is looking at: real jobs, agents and debuggers, seen by another client."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from relay_core.agent_api.announcement import State, TargetInfo
from tests.support.jobs.running import access, agents_on
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Finished, Program, program, run
from tests.support.network.relay import HC, LocalRelay

RANK = 3
TRAIN = """\
import sys, threading, time
from pathlib import Path

def wait_for(name):
    while not Path(sys.argv[1], name).exists():
        time.sleep(0.01)

def train():
    wait_for("crash")
    raise ValueError("odd")

"""
HELD = "crashed: ValueError: odd; held for up to 120 s; a debugger can attach on port"
IN_MAIN_THREAD = "train()\n"
IN_OTHER_THREAD = "threading.Thread(target=train).start()\nwait_for('end')\n"


@dataclass
class Crashing:
    """A job that crashes on request, and the ways to it."""

    job: Program
    port: int
    directory: Path
    tunnels: Tunnels
    environment: dict[str, str]

    def may(self, what: str) -> None:
        """Let the job `crash` or `end`."""
        (self.directory / what).touch()

    async def agent_killed(self) -> None:
        """Kill the agent of the node; the job then holds the crash, because its user has not detached."""
        for agent in agents_on(self.directory / "node"):
            agent.kill()
        await self.job.line(HELD)

    async def looked_and_left(self) -> None:
        """Attach to the crash that is held, and detach from it."""
        async with looking(self.port) as (dap, _):
            await leave(dap)

    async def ended(self, status: int) -> Finished:
        """Wait until the job has ended, with this status."""
        finished = await asyncio.wait_for(self.job.finish(), DEADLINE)
        assert status == finished.status
        return finished

    async def wait(self, state: str) -> Finished:
        """Run `relay-client wait` for its rank."""
        arguments = ["--ranks", str(RANK), "--state", state, "--timeout", "60"]
        return await run("relay_client", "--hc", HC, "wait", *arguments, env=self.environment)

    async def target(self) -> dict[str, object]:
        """Return what `relay-client targets --json` prints of it."""
        finished = await run("relay_client", "--hc", HC, "targets", "--json", env=self.environment)
        ((target,),) = (node["targets"] for node in json.loads(finished.stdout)["nodes"])
        return target

    async def until(self, state: State) -> TargetInfo:
        """Wait until the client in this process sees it in a state."""

        def find() -> TargetInfo | None:
            targets = (claim.target for claim in self.tunnels.reachable_targets())
            return next((target for target in targets if target.state is state), None)

        return await asyncio.wait_for(self.tunnels.search.wait_for(find, lambda _why: None), DEADLINE)


@contextlib.asynccontextmanager
async def crashing(relay: LocalRelay, directory: Path, code: str) -> AsyncIterator[Crashing]:
    script = directory / "train.py"
    script.write_text(TRAIN + code)
    port = free_port()
    options = ["--hc", HC, "--port", str(port), "--debug-ranks", "none", "--debug-on-crash", "--hold", "120"]
    agent = access(relay, directory, "listen", RELAY_RANK=str(RANK), RELAY_WORLD_SIZE="4")
    async with (
        program("relay_agent", "run", *options, "--", sys.executable, str(script), str(directory), env=agent) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port + RANK]),
    ):
        yield Crashing(job, port + RANK, directory, tunnels, access(relay, directory, "send"))


async def stopped_at_the_crash(dap: DapClient) -> int:
    """Wait until the debugger stands at the exception, and return the thread."""
    stopped = (await dap.wait_for_event("stopped", within=DEADLINE))["body"]
    assert "exception" == stopped["reason"]
    return int(stopped["threadId"])


@contextlib.asynccontextmanager
async def looking(port: int) -> AsyncIterator[tuple[DapClient, int]]:
    """Attach to a crash that is held; yields the editor and the thread that has crashed."""
    async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:
        await dap.attach({}, exceptions=[], within=DEADLINE)
        yield dap, await stopped_at_the_crash(dap)


@contextlib.asynccontextmanager
async def stopping_at_exceptions(found: Crashing) -> AsyncIterator[DapClient]:
    """Attach to the job before it crashes; yields the editor, which is stopped at the exception."""
    async with await DapClient.connect("127.0.0.1", found.port, within=DEADLINE) as dap:
        await dap.attach({}, exceptions=["uncaught"], within=DEADLINE)
        found.may("crash")
        await stopped_at_the_crash(dap)
        yield dap


async def leave(dap: DapClient) -> None:
    await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


@pytest.mark.parametrize("attached_before", [False, True], ids=["attached to the crash", "attached before the crash"])
async def test_a_crash_that_somebody_looks_at_is_a_crash(
    relay: LocalRelay, tmp_path: Path, attached_before: bool
) -> None:
    """`wait --state crashed` sees it, and so does `--state attached`; `targets` has the exception and the user."""
    async with crashing(relay, tmp_path, IN_MAIN_THREAD) as found:
        if not attached_before:
            found.may("crash")
            await found.job.line(HELD)
        async with await DapClient.connect("127.0.0.1", found.port, within=DEADLINE) as dap:
            await dap.attach({}, exceptions=[], within=DEADLINE)
            if attached_before:
                assert 0 == (await found.wait("attached")).status
                found.may("crash")
                await found.job.line("crashed: ValueError: odd; a debugger is attached")
            await stopped_at_the_crash(dap)
            assert [0, 0] == [(await found.wait(state)).status for state in ("crashed", "attached")]
            target = await found.target()
            assert ("crashed", "ValueError: odd") == (target["state"], target["detail"])
            assert "@" in str(target["holder"])
            await leave(dap)
        await found.ended(1)


async def test_a_user_leaves_at_the_exception(relay: LocalRelay, tmp_path: Path) -> None:
    """A debugger that was attached stops at the exception; if its user detaches there, the job ends with it."""
    async with crashing(relay, tmp_path, IN_MAIN_THREAD) as found:
        async with stopping_at_exceptions(found) as dap:
            await leave(dap)
        assert 0 == (await found.ended(1)).stderr.count("held for up to")


async def test_the_agent_is_killed_while_a_user_is_at_the_exception(relay: LocalRelay, tmp_path: Path) -> None:
    """The user has not detached: the crash is held."""
    async with crashing(relay, tmp_path, IN_MAIN_THREAD) as found:
        async with stopping_at_exceptions(found):
            await found.agent_killed()
        await found.looked_and_left()
        await found.ended(1)


async def test_the_agent_is_killed_while_somebody_looks_at_a_crash(relay: LocalRelay, tmp_path: Path) -> None:
    """The crash is held again, with its traceback, and the next agent announces it."""
    async with crashing(relay, tmp_path, IN_MAIN_THREAD) as found:
        found.may("crash")
        await found.job.line(HELD)
        async with looking(found.port):
            await found.agent_killed()
        await found.looked_and_left()
        await found.ended(1)


async def test_a_job_that_continues_after_a_crash_is_running(relay: LocalRelay, tmp_path: Path) -> None:
    """An exception in a thread does not end the job: it is crashed while its user looks, and then runs."""
    async with crashing(relay, tmp_path, IN_OTHER_THREAD) as found:
        found.may("crash")
        await found.job.line("crashed: ValueError: odd; held for up to")
        async with looking(found.port) as (dap, thread):
            assert (await found.until(State.CRASHED)).attachment is not None
            await dap.request("continue", {"threadId": thread}, within=DEADLINE)
            assert (await found.until(State.RUNNING)).attachment is not None
            await leave(dap)
        found.may("end")
        await found.ended(0)

"""Facts about debugging a real torch job, of torchrun where it matters: two nodes with two ranks each on one relay."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from tests.support.editors.stopped import Stopped
from tests.support.jobs.processes import gone
from tests.support.jobs.running import agents_on
from tests.support.jobs.torch_job import TorchJob, line_of, needs_torch, torch_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch]
REDUCE = line_of("dist.all_reduce(total)")


@contextlib.asynccontextmanager
async def client(relay: LocalRelay, first: int, *, allow_terminate: bool = False) -> AsyncIterator[None]:
    """Run a client for the ports of four ranks."""
    async with (
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, list(range(first, first + 4)), allow_terminate=allow_terminate),
    ):
        yield


@contextlib.asynccontextmanager
async def attached(port: int, job: TorchJob) -> AsyncIterator[Stopped]:
    """Attach to one rank with a breakpoint at the all_reduce."""
    async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap:
        await dap.attach({str(job.script): [{"line": REDUCE}]}, within=DEADLINE)
        yield Stopped(dap)
        await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


@pytest.mark.usefixtures("torch_import")
async def test_one_rank_and_then_all(relay, tmp_path):
    """Rank 3 of a running job is stopped and steps over an all_reduce; then all four ranks are, at once."""
    port = consecutive_ports(4)[0]
    async with client(relay, port), torch_job(relay, tmp_path, port, "--debug-ranks", "none", forked=True) as job:
        async with attached(port + 3, job) as session:
            await session.until_stopped()
            assert await session.value("rank") == "3"
            assert await session.step() == REDUCE + 1  # the other three are in the same all_reduce, and continue
            assert await session.value("total[0].item()") == "6.0"
        async with contextlib.AsyncExitStack() as stack:
            async with job.standing():
                attaching = (stack.enter_async_context(attached(port + rank, job)) for rank in range(4))
                sessions = await asyncio.gather(*attaching)
            for session in sessions:
                await session.until_stopped()
            assert [await session.value("rank") for session in sessions] == ["0", "1", "2", "3"]
            assert len({await session.value("step") for session in sessions}) == 1
            lines = await asyncio.gather(*(session.step() for session in sessions))
            assert lines == [REDUCE + 1] * 4
            for session in sessions:
                await session.run(job.script)
        job.stop()
        assert await job.finish() == [0, 0]
        assert job.left_over() == []


@pytest.mark.usefixtures("torch_import")
async def test_killed_rank_and_the_next_job(relay, tmp_path):
    """SIGKILL of a torchrun rank ends the job, with nothing left; the same client reaches that rank of the next job."""
    port = consecutive_ports(4)[0]
    async with client(relay, port):
        for attempt in ("first", "second"):
            options = ("--debug-ranks", "none")
            async with torch_job(relay, tmp_path, port, *options, forked=attempt == "second") as job:
                async with attached(port + 3, job) as session:
                    await session.until_stopped()
                    assert await session.value("rank") == "3"
                    assert await session.step() == REDUCE + 1
                    pid = int(await session.value("os.getpid()"))
                    if attempt == "second":
                        await session.run(job.script)
                        job.stop()
                if attempt == "first":
                    assert pid == job.rank_pids()[3]
                    os.kill(pid, signal.SIGKILL)
                statuses = await job.finish()
                assert (statuses == [0, 0]) == (attempt == "second")
                assert job.left_over() == []


@pytest.mark.usefixtures("torch_import")
async def test_rank_that_is_ended_by_its_editor(relay, tmp_path):
    """`terminate` that reaches a rank's debugger ends this rank, but neither the node's agent nor its other rank.

    torchrun would end the other ranks at once, so the ranks run without it.
    """
    port = consecutive_ports(4)[0]
    async with (
        client(relay, port, allow_terminate=True),
        torch_job(relay, tmp_path, port, "--debug-ranks", "none", forked=True) as job,
    ):
        async with attached(port, job) as other:
            await other.until_stopped()
            (agent,) = agents_on(tmp_path / "n0")
            async with await DapClient.connect("127.0.0.1", port + 1, within=DEADLINE) as dap:
                await dap.attach({}, within=DEADLINE)
                ended = (await dap.wait_for_event("process", within=DEADLINE))["body"]["systemProcessId"]
                pids = {int(await other.value("os.getpid()")), ended}
                assert not pids & {parent.pid for parent in agent.parents()}
                await dap.request("terminate", within=DEADLINE)
                assert await gone(ended)
            assert "0" == await other.value("rank")
            assert [agent] == agents_on(tmp_path / "n0")
        assert 0 not in await job.finish()
        assert [] == job.left_over()

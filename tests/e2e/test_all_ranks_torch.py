"""Facts about one debug session for a real torch job: two nodes with two gloo ranks each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from relay_client.dap import DapClient, RequestFailed
from tests.support.editors.all_ranks import AllRanksEditor, all_ranks_editor
from tests.support.jobs.torch_job import SCRIPT, TorchJob, line_of, needs_torch, torch_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch, pytest.mark.usefixtures("torch_import")]
REDUCE = line_of("dist.all_reduce(total)")
SPLIT = SCRIPT.replace(
    "        mean = ",
    """\
        if rank >= 6:
            half = "second"
        else:
            half = "first"
        mean = """,
)
assert SPLIT != SCRIPT
ALONE = """\
import argparse
import os
import time

import relay_agent

parser = argparse.ArgumentParser()
relay_agent.add_debug_arguments(parser)
parser.parse_args()
relay_agent.start_remote_debugging_from_args()
number = 0
while not os.path.exists("stop"):
    number += 1
    time.sleep(0.02)
"""
"""Ranks that do not meet: torch 2.13.0 itself does not get gloo ranks to meet again after a restart on one machine."""
COUNT = next(number for number, line in enumerate(ALONE.splitlines(), start=1) if "+= 1" in line)
BITES = 4.0
"""Seconds in which a step of one rank alone does not come back; that of all ranks takes a tenth of a second."""


async def stopped_together(editor: AllRanksEditor, job: TorchJob) -> int:
    """Attach while all ranks stand between two steps, and let them run to the `all_reduce`; return a thread."""
    async with job.standing():
        await editor.dap.attach({str(job.script): [{"line": REDUCE}]}, within=DEADLINE)
        await editor.until_listed(job.ranks)
    stops = await editor.stops(job.ranks)
    await editor.line(f"ranks 0-{job.ranks - 1} at train.py:{REDUCE}")
    return stops["rank 0"]["threadId"]


async def test_one_step_passes_an_all_reduce(relay: LocalRelay, tmp_path: Path) -> None:
    """One `next` moves all four ranks past the collective; of a group of one, that rank is named as waiting in it."""
    port = consecutive_ports(4)[0]
    async with (
        torch_job(relay, tmp_path, port, "--debug-ranks", "none", forked=True) as job,
        all_ranks_editor(relay) as editor,
    ):
        thread = await stopped_together(editor, job)
        await editor.move("next", thread)
        await editor.line(f"ranks 0-3 at train.py:{REDUCE + 1}")
        assert "6.0" == await editor.evaluate("total[0].item()", thread)
        await editor.move("continue", thread)
        await editor.line(f"ranks 0-3 at train.py:{REDUCE}")
        await editor.evaluate("@group 0")
        await editor.move("next", thread)
        waiting = f"rank 0 in all_reduce, waiting for ranks 1-3; ranks 1-3 at train.py:{REDUCE}; Continue brings them"
        await editor.line(waiting)
        assert waiting in await editor.evaluate("@ranks")
        await editor.evaluate("@group 1-3")
        others = next(number for number, name in (await editor.threads()).items() if name.startswith("rank 1"))
        await editor.move("next", others)
        await editor.line(f"ranks 0-3 at train.py:{REDUCE + 1}")
        await editor.dap.request("disconnect", {"terminateDebuggee": True}, within=DEADLINE)
        job.stop()
        assert [0, 0] == await job.finish()


async def test_eight_ranks_part_and_one_is_killed(relay: LocalRelay, tmp_path: Path) -> None:
    """One `next` moves eight ranks past an `all_reduce`, an `if` parts them, and the others step on after a SIGKILL."""
    port = consecutive_ports(8)[0]
    async with (
        torch_job(relay, tmp_path, port, "--debug-ranks", "none", forked=True, ranks=8, source=SPLIT) as job,
        all_ranks_editor(relay) as editor,
    ):
        thread = await stopped_together(editor, job)
        condition, second, first, mean = (REDUCE + lines for lines in (1, 2, 4, 5))
        for places in (
            f"ranks 0-7 at train.py:{condition}",
            f"ranks 0-5 at train.py:{first}; ranks 6-7 at train.py:{second}",
            f"ranks 0-7 at train.py:{mean}",
        ):
            await editor.move("next", thread)
            await editor.line(places)
        assert "28.0" == await editor.evaluate("total[0].item()", thread)
        fifth = next(number for number, name in (await editor.threads()).items() if name == "rank 5 · MainThread")
        os.kill(int(await editor.evaluate("os.getpid()", fifth)), signal.SIGKILL)
        assert "rank 5" in await editor.line("was killed by SIGKILL")
        assert fifth not in await editor.until_listed(7)
        await editor.move("next", thread)
        await editor.line(f"ranks 0-4, 6-7 at train.py:{mean + 1}")
        await editor.move("continue", thread)
        await editor.line(f"ranks 0-4, 6-7 at train.py:{REDUCE}")
        await editor.dap.request("disconnect", within=DEADLINE)


async def test_the_same_step_of_one_rank_does_not_come_back(relay: LocalRelay, tmp_path: Path) -> None:
    """On rank 0's own port, `next` waits in the collective until the sessions of the other ranks step, too."""
    port = consecutive_ports(4)[0]
    async with (
        torch_job(relay, tmp_path, port, "--debug-ranks", "none", forked=True) as job,
        all_ranks_editor(relay, range(port, port + 4)),
        contextlib.AsyncExitStack() as stack,
    ):
        async with job.standing():
            sessions = [
                await stack.enter_async_context(await DapClient.connect("127.0.0.1", port + r, within=DEADLINE))
                for r in range(4)
            ]
            await asyncio.gather(
                *(each.attach({str(job.script): [{"line": REDUCE}]}, within=DEADLINE) for each in sessions)
            )
        threads = [(await each.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"] for each in sessions]
        await sessions[0].request("next", {"threadId": threads[0]}, within=DEADLINE)
        with pytest.raises(RequestFailed, match="no event 'stopped'"):
            await sessions[0].wait_for_event("stopped", within=BITES)
        for session, thread in list(zip(sessions, threads, strict=True))[1:]:
            await session.request("next", {"threadId": thread}, within=DEADLINE)
        for session in sessions:
            await session.wait_for_event("stopped", within=DEADLINE)
            await session.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        job.stop()
        assert [0, 0] == await job.finish()


async def test_a_restart_by_torchrun_brings_all_ranks_back(relay: LocalRelay, tmp_path: Path) -> None:
    """After SIGKILL of a rank torchrun starts all ranks again: they stop at the breakpoint of the same session."""
    port = consecutive_ports(4)[0]
    async with (
        torch_job(relay, tmp_path, port, "--debug-ranks", "none", restarts=1, nodes=1, source=ALONE) as job,
        all_ranks_editor(relay) as editor,
    ):
        await editor.dap.attach({str(job.script): [{"line": COUNT}]}, within=DEADLINE)
        stops = await editor.stops(4)
        await editor.line(f"ranks 0-3 at train.py:{COUNT}")
        before = await editor.evaluate("os.getpid()", stops["rank 0"]["threadId"])
        os.kill(job.rank_pids()[3], signal.SIGKILL)
        await editor.line("was killed by SIGKILL")
        await editor.line(f"ranks 0-3 at train.py:{COUNT}")
        await editor.until_listed(4)
        again = next(number for number, name in editor.names.items() if name == "rank 0 · MainThread")
        assert before != await editor.evaluate("os.getpid()", again)
        job.stop()
        await editor.dap.request("disconnect", within=DEADLINE)
        assert [0] == await job.finish()

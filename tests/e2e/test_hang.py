"""Facts about `relay-client hang`, with real torch jobs that hang in different ways."""

import asyncio
import signal
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from relay_core.compat import TIMEOUT_ERRORS
from tests.support.jobs.hang_job import hang_job, line_of
from tests.support.jobs.running import access, until_registered
from tests.support.jobs.torch_job import needs_torch
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch, pytest.mark.usefixtures("torch_import")]

DEFAULT = "group 'default' (4 ranks): collective #6"


async def hang_of(relay: LocalRelay, directory: Path, scenario: str, wanted: str, ranks: int = 4) -> str:
    """Run a job until the verdict contains a text, and return the verdict; the exit status is that of a hang."""
    async with hang_job(relay, directory, scenario, ranks=ranks) as job:
        await job.until_ready()
        status, text = await job.verdict_that(wanted)
    assert status == 16
    return text


async def test_skipped_collective(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that is elsewhere is named as missing, with its place."""
    text = await hang_of(relay, tmp_path, "skip", "ranks 0-1,3 at")
    assert (
        f"{DEFAULT} all_reduce [16] float32; entered by ranks 0-1,3 at {line_of('skip: all')} (N s ago); "
        f"missing rank 2, which is at {line_of('skip: elsewhere')} (blocked in a call)"
    ) == text


async def test_rank_that_has_returned_from_the_call(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that waits elsewhere for an operation has the place of the call and the place of the wait."""
    text = await hang_of(relay, tmp_path, "later", f"entered by rank 0 at {line_of('later: calls')}", ranks=2)
    assert (
        "group 'default' (2 ranks): collective #6 all_reduce [16] float32; "
        f"entered by rank 0 at {line_of('later: calls')} (N s ago), now at {line_of('later: waits')} (blocked in a "
        f"call); missing rank 1, which is at {line_of('later: elsewhere')} (blocked in a call)"
    ) == text


async def test_rank_that_waits_for_a_debugger(relay: LocalRelay, tmp_path: Path) -> None:
    """Before the first process group exists, the rank that waits for a debugger is named with its port."""
    async with hang_job(relay, tmp_path, "skip", "--debug-ranks", "0", ranks=2) as job:
        status, text = await job.verdict_that("is waiting for a debugger")
        client = access(relay, tmp_path, "send")
        stacks = await run("relay_client", "--hc", HC, "stacks", env=client)
    assert f"rank 0 is waiting for a debugger on port {job.port}; the other rank may be waiting for that rank" in text
    assert "rank 0: " not in text
    assert status == 0
    assert f", waiting for a debugger on port {job.port}, in " in stacks.stdout


async def test_call_that_is_not_recorded(relay: LocalRelay, tmp_path: Path) -> None:
    """Ranks in a call that no recorder has, such as one that connects them, wait all the same."""
    text = await hang_of(relay, tmp_path, "group", "ranks 0-1,3 are in new_group")
    assert (
        f"ranks 0-1,3 are in new_group at {line_of('group: all')}, which torch has not recorded as waiting: they "
        f"may be connecting to the other ranks; rank 2 is at {line_of('group: elsewhere')} (blocked in a call)"
    ) == text


async def test_other_operation(relay: LocalRelay, tmp_path: Path) -> None:
    """Ranks that call different operations are named, with their operations and places."""
    text = await hang_of(relay, tmp_path, "operation", "ranks 0-1,3 entered")
    assert (
        f"{DEFAULT} differs between ranks: "
        f"ranks 0-1,3 entered all_reduce [16] float32 at {line_of('operation: all')}, "
        f"rank 2 entered broadcast [16] float32 at {line_of('operation: odd')} (N s ago)"
    ) == text


async def test_other_shape(relay: LocalRelay, tmp_path: Path) -> None:
    """Ranks that pass tensors of different shapes are named, with the shapes, beside the rank that is missing."""
    text = await hang_of(relay, tmp_path, "shape", "rank 2 entered")
    place = line_of("shape: all")
    assert (
        f"{DEFAULT} differs between ranks: ranks 0-1 entered broadcast [16] float32 at {place}, "
        f"rank 2 entered broadcast [17] float32 at {place} (N s ago); "
        f"missing rank 3, which is at {line_of('shape: root')} (blocked in a call)"
    ) == text


async def test_other_group_order(relay: LocalRelay, tmp_path: Path) -> None:
    """Two groups whose ranks call them in different orders are first named as waiting for each other."""
    text = await hang_of(relay, tmp_path, "order", "are waiting for each other", ranks=2)
    place = line_of("order: all")
    cycle, *others = text.split("\n\n")
    first, second = sorted(others)
    names = "group 'first' (ranks 0-1)", "group 'second' (ranks 0-1)"
    call = "collective #1 all_reduce"
    assert (
        f"{names[0]}: {call} [16] float32; entered by rank 0 at {place} (N s ago); "
        f"missing rank 1, which is waiting in {call} of {names[1]} at {place}"
    ) == first
    assert (
        f"{names[1]}: {call} [16] float32; entered by rank 1 at {place} (N s ago); "
        f"missing rank 0, which is waiting in {call} of {names[0]} at {place}"
    ) == second
    assert " are waiting for each other: " in cycle
    assert cycle.endswith(" enter their collectives in different orders, or use the wrong group")


async def test_dead_rank(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that was killed is missing, with the signal, from the collective that the others have entered."""
    async with hang_job(relay, tmp_path, "dead", "--debug-on-crash", "--debug-hold", "300") as job:
        await job.until_ready()
        await job.verdict_that("missing rank 2, which is at train.py")  # the agent knows it
        (tmp_path / "kill").touch()
        entered = f"entered by ranks 0-1,3 at {line_of('dead: all')} (N s ago)"
        status, text = await job.verdict_that(f"{entered}; missing rank 2, which was killed by SIGKILL")
    killed = "was killed by SIGKILL (the usual cause is lack of memory)"
    assert (f"{DEFAULT} all_reduce [16] float32; {entered}; missing rank 2, which {killed}") == text
    assert status == 16


async def test_endless_loop(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank in a loop of Python code is missing, and running Python."""
    text = await hang_of(relay, tmp_path, "loop", "ranks 0,2-3 at")
    place = line_of("loop: turns")
    before = place.replace(place.split(":")[1].split(" ")[0], str(int(place.split(":")[1].split(" ")[0]) - 1))
    assert text in {
        f"{DEFAULT} barrier; entered by ranks 0,2-3 at {line_of('loop: all')} (N s ago); "
        f"missing rank 1, which is at {where} (running Python)"
        for where in (place, before)
    }


async def test_two_groups(relay: LocalRelay, tmp_path: Path) -> None:
    """Two groups that hang at the same time have a paragraph each, with global ranks."""
    text = await hang_of(relay, tmp_path, "two", "(ranks 1,3)")
    call = f"collective #1 all_reduce [16] float32; entered by rank {{}} at {line_of('two: all')} (N s ago)"
    where = f"is at {line_of('two: elsewhere')} (blocked in a call)"
    assert {
        f"group 'even' (ranks 0,2): {call.format(0)}; missing rank 2, which {where}",
        f"group '2' (ranks 1,3): {call.format(1)}; missing rank 3, which {where}",
    } == set(text.split("\n\n"))


async def test_job_that_runs_well(relay: LocalRelay, tmp_path: Path) -> None:
    """A job whose ranks meet all the time does not hang."""
    async with hang_job(relay, tmp_path, "well", ranks=2) as job:
        await job.until_ready()
        wanted = "no rank is waiting in a collective; run 'relay-client stacks' to see what each rank is doing"
        assert (0, wanted) == await job.verdict_that(wanted)


async def test_rank_that_holds_the_gil(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank whose C code holds the GIL cannot report its groups; a signal finds its place."""
    async with hang_job(relay, tmp_path, "gil", ranks=2) as job:
        await job.until_ready()
        await job.verdict_that("missing rank 1, which is at train.py")  # the agent knows it
        (tmp_path / "hold").touch()
        status, text = await job.verdict_that("C code holds the GIL")
    assert (
        f"group 'default' (2 ranks): collective #6 all_reduce [16] float32; "
        f"entered by rank 0 at {line_of('gil: all')} (N s ago); unknown: rank 1, which did not answer within 1.5 s "
        f"and is at {line_of('gil: holder')} (C code holds the GIL)"
    ) == text
    assert status == 16


async def test_rank_at_a_breakpoint(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that a debugger has stopped is named as such, and so is a job all of whose ranks are stopped."""
    place = line_of("well: pause")
    line = int(place.split(":")[1].split()[0])
    breakpoints = {str(tmp_path / "train.py"): [{"line": line}]}
    async with (
        hang_job(relay, tmp_path, "well", ranks=2) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [job.port, job.port + 1]),
    ):
        await job.until_ready()
        async with await DapClient.connect("127.0.0.1", job.port + 1, within=DEADLINE) as second:
            await second.attach(breakpoints, within=DEADLINE)
            await second.wait_for_event("stopped", within=DEADLINE)
            status, text = await job.verdict_that("stopped by a debugger")
            assert text.endswith(f"missing rank 1, which is stopped by a debugger at {place}")
            assert status == 16
            stacks = await run("relay_client", "--hc", HC, "stacks", env=access(relay, tmp_path, "send"))
            assert f", stopped by a debugger on port {job.port + 1}, in " in stacks.stdout
            async with await DapClient.connect("127.0.0.1", job.port, within=DEADLINE) as first:
                await first.attach(breakpoints, within=DEADLINE)
                second_thread = (await second.request("threads", {}, within=DEADLINE))["threads"][0]["id"]
                await second.request("continue", {"threadId": second_thread}, within=DEADLINE)
                for stopped in (first, second):
                    await stopped.wait_for_event("stopped", within=DEADLINE)
                assert (0, "all 2 ranks are stopped by a debugger or waiting for one: this is not a hang") == (
                    await job.verdict()
                )


async def test_watch(relay: LocalRelay, tmp_path: Path) -> None:
    """`--watch` reports a hang after the given time, once, and stops at a signal with status 0."""
    async with hang_job(relay, tmp_path, "skip") as job:
        await job.until_ready()
        await until_registered(relay, tmp_path, 4)
        client = access(relay, tmp_path, "send")
        async with program("relay_client", "--hc", HC, "hang", "--watch", "2", env=client) as watching:
            assert watching.process.stdout is not None
            line = (await asyncio.wait_for(watching.process.stdout.readline(), DEADLINE)).decode()
            assert f"missing rank 2, which is at {line_of('skip: elsewhere')} (blocked in a call)\n" in line
            with pytest.raises(TIMEOUT_ERRORS):  # ten more looks
                await asyncio.wait_for(watching.process.stdout.readline(), 5)
            watching.process.send_signal(signal.SIGINT)
            finished = await watching.finish()
        await see_wait_in_pdb(client)
    assert (0, "") == (finished.status, finished.stdout)


async def see_wait_in_pdb(client: dict[str, str]) -> None:
    """While a rank runs, its prompt shows for which ranks it waits."""
    async with program("relay_client", "--hc", HC, "pdb", "0", "--no-stop", env=client, has_stdin=True) as prompt:
        assert prompt.process.stdin is not None
        assert prompt.process.stdout is not None
        prompt.process.stdin.write(b"c\n")
        line = b""
        while b"still running: in all_reduce, waiting for rank 2" not in line:
            line = await asyncio.wait_for(prompt.process.stdout.readline(), DEADLINE)
            assert line, "the prompt has ended"


async def test_no_process_group(relay: LocalRelay, tmp_path: Path) -> None:
    """A job without a process group is named as such."""
    async with hang_job(relay, tmp_path, "alone", ranks=2) as job:
        wanted = "ranks 0-1: torch.distributed has no process group"
        assert (0, wanted) == await job.verdict_that(wanted)

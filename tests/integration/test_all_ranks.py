"""Facts about one debug session for all ranks: a real relay, agent and debugpy in each of several processes."""

import os
import signal
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.editors.all_ranks import AllRanksEditor, all_ranks_editor
from tests.support.jobs.many_ranks import Ranks, line_of
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.job

TRAIN = """\
import os
import time

rank = int(os.environ["RELAY_RANK"])
number = 0
while number < 1_000_000:
    number += 1
    if rank == 2:
        odd = number
    else:
        even = number
    time.sleep(0.01)
"""
COUNT = line_of(TRAIN, "number += 1")
SPLIT = line_of(TRAIN, "if rank == 2")


async def attached(editor: AllRanksEditor, ranks: Ranks, **breakpoint_: object) -> list[dict[str, object]]:
    """Attach with a breakpoint where `number` is counted."""
    found = await editor.dap.attach({str(ranks.script): [{"line": COUNT, **breakpoint_}]}, within=DEADLINE)
    return found[str(ranks.script)]


def script_in(directory: Path) -> Path:
    script = directory / "train.py"
    script.write_text(TRAIN)
    return script


async def test_all_ranks_stop_step_and_split(relay: LocalRelay, tmp_path: Path) -> None:
    """Four ranks stop at a breakpoint, one `next` moves all, a condition splits them, and a value is set in one."""
    async with Ranks(relay, script_in(tmp_path), 4) as ranks, all_ranks_editor(relay) as editor:
        await attached(editor, ranks)
        stops = await editor.stops(4)
        assert ["rank 0", "rank 1", "rank 2", "rank 3"] == sorted(stops)
        assert 1 == sum("preserveFocusHint" not in body for body in stops.values())
        assert {False} == {body["allThreadsStopped"] for body in stops.values()}
        await editor.line(f"ranks 0-3 at train.py:{COUNT}")
        first = stops["rank 1"]["threadId"]
        await editor.move("next", first)
        assert 4 == len(await editor.stops(4))
        await editor.line(f"ranks 0-3 at train.py:{SPLIT}")
        await editor.move("next", first)
        await editor.stops(4)
        await editor.line(f"ranks 0-1, 3 at train.py:{SPLIT + 3}; rank 2 at train.py:{SPLIT + 1}")
        values = {name: await editor.evaluate("rank", body["threadId"]) for name, body in stops.items()}
        assert {"rank 0": "0", "rank 1": "1", "rank 2": "2", "rank 3": "3"} == values
        await editor.set_variable(first, "number", "-7")
        hovered = {name: await editor.evaluate("number", body["threadId"], "hover") for name, body in stops.items()}
        assert ["rank 1"] == [name for name, value in hovered.items() if value == "-7"]


async def all_stopped(editor: AllRanksEditor, ranks: Ranks, count: int) -> dict[str, int]:
    """Attach, and wait until all ranks have stopped; return the threads by rank."""
    await attached(editor, ranks)
    stops = await editor.stops(count)
    await editor.line(f"ranks 0-{count - 1} at train.py:{COUNT}")
    return {name: body["threadId"] for name, body in stops.items()}


async def test_a_killed_rank_leaves_and_comes_back(relay: LocalRelay, tmp_path: Path) -> None:
    """SIGKILL of a rank is a line, its threads leave, the others step; started again, it has its breakpoints."""
    async with Ranks(relay, script_in(tmp_path), 3) as ranks, all_ranks_editor(relay) as editor:
        threads = await all_stopped(editor, ranks, 3)
        os.kill(ranks.jobs[1].process.pid, signal.SIGKILL)
        assert "rank 1 on" in await editor.line("was killed by SIGKILL")
        left = await editor.dap.wait_for_event(
            "thread", matching=lambda body: body["reason"] == "exited", within=DEADLINE
        )
        assert threads["rank 1"] == left["body"]["threadId"]
        await editor.move("next", threads["rank 0"])
        await editor.line(f"ranks 0, 2 at train.py:{SPLIT}")
        await ranks.start(1)
        again = await editor.stops_of("rank 1")
        assert threads["rank 1"] != again
        assert COUNT == (await editor.top(again))["line"]


async def test_eight_ranks_continue_to_the_next_breakpoint(relay: LocalRelay, tmp_path: Path) -> None:
    """Eight ranks stop, continue and stop again together; with a condition on `RANK`, one of them stops."""
    async with Ranks(relay, script_in(tmp_path), 8) as ranks, all_ranks_editor(relay) as editor:
        threads = await all_stopped(editor, ranks, 8)
        await editor.move("continue", threads["rank 3"])
        await editor.line(f"ranks 0-7 at train.py:{COUNT}")
        found = await editor.dap.set_breakpoints(
            str(ranks.script), [{"line": COUNT, "condition": "RANK == 5 and number > 3"}], within=DEADLINE
        )
        assert [True] == [each["verified"] for each in found]
        await editor.move("continue", threads["rank 3"])
        assert threads["rank 5"] == await editor.stops_of("rank 5")
        assert "running" in await editor.line(f"rank 5 at train.py:{COUNT}")
        assert "5" == await editor.evaluate("rank", threads["rank 5"])


async def test_a_held_rank_is_named_and_joins_when_it_is_free(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that another client debugs is left out with its holder, and joins when that has disconnected."""
    async with Ranks(relay, script_in(tmp_path), 2) as ranks, all_ranks_editor(relay) as editor:
        async with all_ranks_editor(relay) as other:
            await other.dap.attach({}, within=DEADLINE)
            await other.until_listed(2)
            await attached(editor, ranks)
            assert "rank 0 is held by " in await editor.line("rank 0 is held by")
            await other.dap.request("disconnect", within=DEADLINE)
        assert {"rank 0", "rank 1"} == set(await editor.stops(2))


async def test_an_editor_that_disappears_releases_all_ranks(relay: LocalRelay, tmp_path: Path) -> None:
    """When the editor's connection is closed, every rank runs on and can be debugged again."""
    async with Ranks(relay, script_in(tmp_path), 2) as ranks, all_ranks_editor(relay) as editor:
        await all_stopped(editor, ranks, 2)
        await editor.dap.close()
        async with await DapClient.connect("127.0.0.1", editor.port, within=DEADLINE) as dap:
            again = AllRanksEditor(dap, editor.port)
            await again.dap.attach({str(ranks.script): [{"line": COUNT, "condition": "number > 20"}]}, within=DEADLINE)
            assert {"rank 0", "rank 1"} == set(await again.stops(2))
            await dap.request("disconnect", {"terminateDebuggee": True}, within=DEADLINE)


async def test_the_session_ends_with_the_job(relay: LocalRelay, tmp_path: Path) -> None:
    """When all ranks have ended the editor is shown how, in one line for all, and the session ends."""
    script = tmp_path / "train.py"
    script.write_text(
        "import time\n\nfor number in range(1_000_000):\n    time.sleep(0.01)\n    if number < 0:\n        break\n"
    )
    async with Ranks(relay, script, 2) as ranks, all_ranks_editor(relay) as editor:
        await editor.dap.attach({str(script): [{"line": 5}]}, within=DEADLINE)
        stops = await editor.stops(2)
        for body in stops.values():
            await editor.evaluate("number = -1", body["threadId"])
        await editor.dap.set_breakpoints(str(script), [], within=DEADLINE)
        await editor.move("continue", stops["rank 0"]["threadId"])
        await editor.line("ended")
        await editor.dap.wait_for_event("terminated", within=DEADLINE)
        assert [0, 0] == [await job.process.wait() for job in ranks.jobs.values()]


async def test_a_pause_of_ranks_that_run_c_code(relay: LocalRelay, tmp_path: Path) -> None:
    """Each pause that has no effect for 2 s is one line with the names of all ranks, which stop when they return."""
    script, wakes = tmp_path / "train.py", tmp_path / "wakes"
    os.mkfifo(wakes)
    script.write_text(f"for number in range(1_000_000):\n    open({str(wakes)!r}).close()\n")
    async with Ranks(relay, script, 2), all_ranks_editor(relay) as editor:
        await editor.dap.attach({}, within=DEADLINE)
        thread = next(iter(await editor.until_listed(2)))
        for _ in range(2):
            await editor.dap.request("pause", {"threadId": thread}, within=DEADLINE)
            line = await editor.line("C code")
            assert "ranks 0-1 are running C code and will stop when it returns to Python" == line
        wakes.open("w").close()
        assert {"rank 0", "rank 1"} == set(await editor.stops(2))

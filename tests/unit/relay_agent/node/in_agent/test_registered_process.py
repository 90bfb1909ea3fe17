"""Facts about one registered process as the agent sees it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relay_agent.node.in_agent.processes import ProcessTable
from relay_agent.node.in_agent.registered_process import MAX_UNREAD, RegisteredProcess
from relay_agent.stacks.out_of_process import Dump
from relay_core.agent_api.evaluation import Evaluate, Selection
from relay_core.agent_api.push import Pushed, State
from relay_core.agent_api.questions import Question, ReadCollectives, ReadEnvironment, ReadStacks, Reply
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.errors import RelayDebugError
from relay_core.layers.stop_observer import Place
from relay_core.records import encode
from tests.support.jobs.node_process import connection
from tests.support.machine.deadline import DEADLINE


@pytest.fixture
def exited_pid() -> int:
    """The id of a process that has exited."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("how", ["exited", "closed its connection to the agent, or is exiting"])
async def test_an_exit_counts_after_the_debugger_had_time(
    monkeypatch: pytest.MonkeyPatch, exited_pid: int, how: str
) -> None:
    """Sessions of a process are ended some time after it has left, and not before; its exit is stated if it is true."""
    pid = exited_pid if how == "exited" else os.getpid()
    monkeypatch.setattr("relay_agent.node.in_agent.registered_process.DEBUGGER_END_TIMEOUT", 0.05)
    async with connection() as (writer, _):
        process = RegisteredProcess(writer, pid, {"register": {"port": 5678, "script": "train.py"}})
        ended = asyncio.ensure_future(process.until_ended())
        await asyncio.sleep(0)
        assert not ended.done()
        process.left()
        await asyncio.sleep(0)
        assert not ended.done()
        expected = f"the process on port 5678 (pid {pid}, train.py) has {how}"
        assert expected == await asyncio.wait_for(ended, DEADLINE)


async def test_optional_fields_of_a_registration(tmp_path: Path) -> None:
    """The process has what its registration contains; only ports are forwarded, and each source is a push."""
    record = {"port": 5678, "pid": 11}
    lists = {"forwards": [6006, "x"], "event_directories": ["/runs"], "sources": {"/a.py": "1a2b"}}
    dump = {"path": str(tmp_path), "signal": 10}
    async with connection() as (writer, _):
        process = RegisteredProcess(writer, 1, {"register": record, **lists, "monitor": 5.0, "dump": dump})
    assert (1, 11) == (process.pid, process.own_pid)
    assert process.monitor is not None
    assert ([6006], ["/runs"], {"/a.py": "1a2b"}) == (process.forwards, process.event_directories, process.sources)
    assert (1, Dump(tmp_path, 10)) == (process.describe().pushes, process.dump)


async def test_a_debugger_makes_an_ending_important(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was asked to start debugpy, or to connect to an editor, counts as debugged."""
    monkeypatch.setattr("relay_agent.node.in_agent.registered_process.ARM_TIMEOUT", 0.0)
    for attach in (RegisteredProcess.locate, lambda process: process.connect_to(1)):
        async with connection() as (writer, _):
            process = RegisteredProcess(writer, 1, {"register": {"port": 5678}})
            assert not process.was_debugged
            with pytest.raises(RelayDebugError):
                await attach(process)
            assert process.was_debugged


async def test_silent_process_is_not_asked_to_evaluate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not answer a check has a silent reply soon, whatever the time limit of the evaluation is."""
    monkeypatch.setattr("relay_agent.node.in_agent.registered_process.SILENCE", 0.05)
    async with connection() as (writer, far):
        process = RegisteredProcess(writer, 1, {"register": {"port": 5678, "rank": 0}})
        reply = await asyncio.wait_for(process.reply(Evaluate("weight", Selection(), seconds=3600)), DEADLINE)
        assert Reply(5678, 0, error="no answer within 0.05 s", is_silent=True, pid=1) == reply
        assert ["check"] == [json.loads(line)["ask"] for line in far.recv(4096).splitlines()]


async def test_a_process_learns_which_others_are_registered() -> None:
    """With the request to start debugpy, a process receives the process ids of all that have their own port."""
    async with connection() as (writer, far):
        table = ProcessTable()
        first = RegisteredProcess(writer, 1, {"register": {"port": 5678, "pid": 11}})
        for each in (first, RegisteredProcess(writer, 2, {"register": {"port": 5679, "pid": 12}})):
            assert table.admit(each)
        locating = asyncio.ensure_future(first.locate())
        await asyncio.sleep(0)
        messages = [json.loads(line) for line in far.recv(4096).splitlines()]
        assert [[11, 12]] == [message["body"]["registered"] for message in messages if message.get("ask") == "arm"]
        first.answer_received({"answer": messages[-1]["id"], "result": 40000})
        assert ("127.0.0.1", 40000) == await locating


async def test_replies_to_a_question() -> None:
    """A reply has the answer, or the error; a process that does not answer in time or has left is a silent one."""

    class Asked(Question):
        name = "clock"

    async with connection() as (writer, far):
        pid = os.getpid()
        process = RegisteredProcess(writer, pid, {"register": {"port": 5678, "rank": 0}})
        replies = []
        for fields in ({"result": {"seconds": 7}}, {"error": "no clock"}, {}):
            replying = asyncio.ensure_future(process.reply(Asked()))
            await asyncio.sleep(0)
            asked = json.loads(far.recv(4096))
            assert ("clock", {"seconds": 5}) == (asked["ask"], asked["body"])
            process.answer_received({"answer": asked["id"], **fields})
            replies.append(await replying)
        late = await process.reply(Asked(seconds=0.001))
        process.left()
        gone = await process.reply(Asked())
    assert [Reply(5678, 0, {"seconds": 7}, pid=pid), Reply(5678, 0, error="no clock", pid=pid)] == replies[:2]
    assert "runs another version of relay-debug" in replies[2].error
    assert Reply(5678, 0, error="no answer within 0.001 s", is_silent=True, pid=pid) == late
    assert gone.is_silent


async def test_the_reason_of_a_process_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why stacks were read from outside is what the process has reported, or that it did not answer."""
    reasons = []

    async def read_stacks(_pid: int, reason: str, *_dump: object, **_options: object) -> ProcessStacks:
        reasons.append(reason)
        return ProcessStacks()

    monkeypatch.setattr("relay_agent.node.in_agent.registered_process.stacks_from_outside", read_stacks)
    async with connection() as (writer, _):
        process = RegisteredProcess(writer, os.getpid(), {"register": {"port": 5678}})
        replying = asyncio.ensure_future(process.reply(ReadStacks()))
        await asyncio.sleep(0)
        process.answer_received({"answer": 1, "error": "torch gave no answer"})
        await replying
        await process.reply(ReadStacks(seconds=0.001))
    assert ["torch gave no answer", "its helper thread did not answer within 0.001 s"] == reasons


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_place_of_a_stop(is_stopped: bool) -> None:
    """It is the innermost frame of the thread that has stopped; without one, or without an answer, it is unknown."""
    frames = [Frame("/job/train.py", 9, "main"), Frame("/job/data.py", 7, "load")]
    threads = [ThreadStack("MainThread", 1, True, ()), ThreadStack("loader", 2, False, tuple(frames), is_stopped)]
    async with connection() as (writer, far):
        process = RegisteredProcess(writer, os.getpid(), {"register": {"port": 5678}})
        asking = asyncio.ensure_future(process.stopped_at())
        await asyncio.sleep(0)
        asked = json.loads(far.recv(4096))
        process.answer_received({"answer": asked["id"], "result": encode(ProcessStacks(threads=tuple(threads)))})
        assert ("stacks", False) == (asked["ask"], asked["body"].get("locals", False))
        assert (Place("/job/data.py", 7, "load") if is_stopped else None) == await asking
        process.left()
        assert await process.stopped_at() is None


async def test_stacks_of_a_process_that_does_not_answer(exited_pid: int) -> None:
    """The agent reads them by other methods, or returns why it cannot, for the questions that request it."""
    async with connection() as (writer, _):
        process = RegisteredProcess(writer, exited_pid, {"register": {"port": 5678, "rank": 0}})
        replies = [await process.reply(kind(seconds=0.01)) for kind in (ReadStacks, ReadCollectives, ReadEnvironment)]
    assert [{"error": "it has exited"}, {"error": "it has exited"}, None] == [reply.stacks for reply in replies]
    assert {"no answer within 0.01 s"} == {reply.error for reply in replies}


async def test_replaced_code_is_announced() -> None:
    """Each replaced file counts as a push, with the digest of its new content; a failed push does not count."""
    async with connection() as (writer, _):
        process = RegisteredProcess(writer, os.getpid(), {"register": {"port": 5678}})
        for result in (Pushed(state=State.DONE, file="/a.py", digest="1a2b"), Pushed(error="no")):
            process.code_replaced(result)
    assert ({"/a.py": "1a2b"}, 1) == (process.sources, process.describe().pushes)


async def test_process_that_reads_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Pongs for a process that reads nothing do not accumulate: its connection is closed with one line in the log."""
    pong = {"pong": True, "padding": "x" * 65536}
    async with connection() as (writer, _):
        process = RegisteredProcess(writer, os.getpid(), {"register": {"port": 5678}})
        for _ in range(2 * MAX_UNREAD // 65536):
            process.send(pong)
            assert writer.transport.get_write_buffer_size() < MAX_UNREAD + 2 * 65536
        assert writer.is_closing()
    line = f"port 5678 (pid {os.getpid()}): closing the connection to the process, because it does not read"
    assert [line] == [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def test_a_process_runs_since_its_debugger_has_let_it_run() -> None:
    """After a debugger has left, the process has not been running while it was stopped, until its state changes."""
    async with connection() as (writer, _):
        process = RegisteredProcess(
            writer, os.getpid(), {"register": {"port": 5678, "state": "running", "since": 100.0}}
        )
        process.detached(None)
        assert 100.0 == process.describe().activity_since
        process.detached(300.0)
        process.detached(None)
        assert 300.0 == process.describe().activity_since
        process.set_state({"state": "crashed"})
        process.set_state({"state": "running"})
        assert 300.0 != process.describe().activity_since


async def test_a_launcher_that_is_being_debugged_is_not_idle() -> None:
    """A rank that it has started waits for its port until the launcher runs without a debugger, or has left."""
    async with connection() as (writer, _):
        launcher = RegisteredProcess(writer, os.getpid(), {"register": {"port": 5678}})
        rank = RegisteredProcess(writer, os.getpid(), {"register": {"port": 5678, "launched": True}})
        assert rank.displaces(launcher)
        assert not launcher.displaces(rank)
        await asyncio.wait_for(launcher.until_idle(), DEADLINE)
        launcher.set_state({"state": "waiting"})
        idle = asyncio.ensure_future(launcher.until_idle())
        attaching = asyncio.ensure_future(launcher.connect_to(1))
        await asyncio.sleep(0)
        launcher.set_state({"state": "running", "detail": "", "until": None})
        await asyncio.sleep(0)
        launcher.set_state({"state": "running"})
        await asyncio.sleep(0)
        assert not idle.done()
        launcher.detached(None)
        await asyncio.wait_for(idle, DEADLINE)
        attaching.cancel()

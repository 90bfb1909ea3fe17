"""Facts about one registered process as the agent sees it."""

import asyncio
import json
import os
import socket
import subprocess
import sys

import pytest

from relay_agent.node.in_agent.processes import ProcessTable
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.evaluation import Evaluate, Selection, Value
from relay_core.agent_api.members import Member
from tests.support.deadline import DEADLINE


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
    near, far = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=near)
    process = RegisteredProcess(writer, pid, {"port": 5678, "script": "train.py"})
    ended = asyncio.ensure_future(process.until_ended())
    await asyncio.sleep(0)
    assert not ended.done()
    process.left()
    await asyncio.sleep(0)
    assert not ended.done()
    expected = f"the process on port 5678 (pid {pid}, train.py) has {how}"
    assert expected == await asyncio.wait_for(ended, DEADLINE)
    await writer.wait_closed()
    far.close()


async def test_silent_process_is_not_asked_to_evaluate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not answer a check is a silent value soon, whatever the time limit of the evaluation is."""
    monkeypatch.setattr("relay_agent.node.in_agent.registered_process.SILENCE", 0.05)
    near, far = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=near)
    process = RegisteredProcess(writer, 1, {"port": 5678, "rank": 0})
    value = await asyncio.wait_for(process.evaluate(Evaluate("weight", seconds=3600, selection=Selection())), DEADLINE)
    assert Value((Member(5678, 0),), error="no answer within 0.05 s", is_silent=True) == value
    assert ["check"] == [json.loads(line)["ask"] for line in far.recv(4096).splitlines()]
    process.left()
    await writer.wait_closed()
    far.close()


async def test_a_process_learns_which_others_are_registered() -> None:
    """With the request to start debugpy, a process receives the process ids of all that have their own port."""
    near, far = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=near)
    table = ProcessTable()
    first = RegisteredProcess(writer, 1, {"port": 5678, "pid": 11})
    for each in (first, RegisteredProcess(writer, 2, {"port": 5679, "pid": 12})):
        assert table.admit(each, {"register": {"port": each.logical_port}})
    locating = asyncio.ensure_future(first.locate())
    await asyncio.sleep(0)
    messages = [json.loads(line) for line in far.recv(4096).splitlines()]
    assert [[11, 12]] == [message["registered"] for message in messages if message.get("ask") == "arm"]
    first.answer_received({"answer": messages[-1]["id"], "port": 40000})
    assert ("127.0.0.1", 40000) == await locating
    first.left()
    await writer.wait_closed()
    far.close()

"""Facts about one registered process as the agent sees it."""

import asyncio
import socket

import pytest

from relay_agent.node.in_agent.registered_process import RegisteredProcess


async def test_an_exit_counts_after_the_debugger_had_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of a process are ended some time after its exit, with its name, and not before."""
    monkeypatch.setattr("relay_agent.node.in_agent.registered_process.DEBUGGER_END_TIMEOUT", 0.05)
    near, far = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=near)
    process = RegisteredProcess(writer, 1, {"port": 5678, "script": "train.py"})
    ended = asyncio.ensure_future(process.until_ended())
    await asyncio.sleep(0)
    assert not ended.done()
    process.exited()
    await asyncio.sleep(0)
    assert not ended.done()
    assert "5678 (pid 1, train.py) has exited" == await asyncio.wait_for(ended, 20)
    await writer.wait_closed()
    far.close()

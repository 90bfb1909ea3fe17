"""Facts about the debug session of a program that is not an editor, with an adapter of the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from relay_client.dap import DapClient, DebugSession, RequestFailed
from relay_core.dap.framing import MessageDecoder, encode
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.streams import MemoryStream, stream_pair

STOPPED = {"seq": 1, "type": "event", "event": "stopped", "body": {"reason": "breakpoint", "threadId": 5}}
TERMINATED = {"seq": 1, "type": "event", "event": "terminated"}
EXITED = {"seq": 1, "type": "event", "event": "exited", "body": {"exitCode": 3}}


async def serve(stream: MemoryStream, refused: str) -> None:
    """Answer each request with success, except one command: it is refused, with a reason."""
    decoder = MessageDecoder()
    while data := await stream.read():
        for request in decoder.receive_data(data):
            command = request["command"]
            if command == "unanswered":
                continue
            answer = {"seq": 1, "type": "response", "request_seq": request["seq"], "command": command}
            await stream.write(encode({**answer, "success": command != refused, "message": "not now"}))
            if command == "attach":
                await stream.write(encode({"seq": 1, "type": "event", "event": "initialized"}))


@contextlib.asynccontextmanager
async def attached(
    how_ended: Callable[[], Awaitable[str]] | None = None, refused: str = ""
) -> AsyncIterator[tuple[DebugSession, Callable[[dict[str, Any]], Awaitable[None]]]]:
    """A session that has attached, and what sends an event of its adapter."""
    near, far = stream_pair()
    serving = asyncio.ensure_future(serve(far, refused))
    async with DapClient(near) as client, DebugSession(client, how_ended) as session:
        await session.attach({})
        yield session, lambda event: far.write(encode(event))
    await serving


async def test_a_refused_move() -> None:
    """A process whose debugger refuses to resume it is still stopped, in the same thread."""
    async with attached(refused="next") as (session, send):
        await send(STOPPED)
        assert await session.wait(DEADLINE)
        with pytest.raises(RequestFailed, match="the debugger refused 'next': not now"):
            await session.move("next")
        assert (True, 5) == (session.is_stopped, session.stopped_thread)


async def test_a_move_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose debugger does not answer in time may be running; its next stop shows where it is."""
    monkeypatch.setattr(DebugSession, "response_timeout", 0.05)
    async with attached(refused="") as (session, send):
        await send(STOPPED)
        assert await session.wait(DEADLINE)
        with pytest.raises(RequestFailed, match=r"no response to 'unanswered' within 0\.05 s"):
            await session.move("unanswered")
        assert not session.is_stopped
        assert not await session.wait(0.01)
        await send(STOPPED)
        assert await session.wait(DEADLINE)
        assert session.is_stopped


@pytest.mark.parametrize(
    ("event", "reason"),
    [(EXITED, "the job has ended with exit code 3"), (TERMINATED, "the job ended with status 4")],
)
async def test_the_end(event: dict[str, Any], reason: str) -> None:
    """A session ends with the exit code that the debugger reports or, without one, with what is announced later."""
    announced = asyncio.Event()

    async def how_ended() -> str:
        assert session.is_over
        assert "" == session.end_reason
        await announced.wait()
        return "ended with status 4"

    async with attached(how_ended) as (session, send):
        await send(event)
        asyncio.get_running_loop().call_soon(announced.set)
        assert await session.wait(DEADLINE)
        assert (reason, False, None) == (session.end_reason, session.is_stopped, session.lost)


async def test_events_are_not_kept() -> None:
    """The output of a job that prints much does not accumulate in the session."""
    async with attached() as (session, send):
        for _ in range(100):
            await send({"seq": 1, "type": "event", "event": "output", "body": {"output": "x"}})
        await send(STOPPED)
        assert await session.wait(DEADLINE)
        assert not session.client._events

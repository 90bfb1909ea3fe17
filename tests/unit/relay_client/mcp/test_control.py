"""Facts about a coding agent's debug session with one rank, with a debugger that refuses."""

import asyncio

import pytest

from relay_client.dap import DapClient, RequestFailed
from relay_client.mcp.control import _breakpoint, _Session
from relay_core.dap.framing import MessageDecoder, encode
from tests.support.deadline import DEADLINE


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with a failure."""
    decoder = MessageDecoder()
    while data := await reader.read(4096):
        for request in decoder.receive_data(data):
            failure = {"seq": 1, "type": "response", "request_seq": request["seq"], "command": request["command"]}
            writer.write(encode({**failure, "success": False, "message": "not now"}))
    writer.close()


async def test_a_refused_request_to_resume() -> None:
    """A rank whose debugger refuses to resume it is still stopped, in the same thread."""
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server, await DapClient.connect(*server.sockets[0].getsockname(), within=DEADLINE) as client:
        session = _Session(3, client)
        session.thread = 7
        with pytest.raises(RequestFailed, match="not now"):
            await session.resume("next")
        assert (7, "<_Session rank 3 stopped>") == (session.thread, repr(session))


def test_a_moved_breakpoint() -> None:
    """A breakpoint that the debugger has moved to another line is reported with the reason, others as they are."""
    moved = {"verified": True, "line": 33, "id": 1}
    message = "line 9999 is not executable: moved to line 33"
    assert {"verified": True, "line": 33, "message": message} == _breakpoint(9999, moved)
    assert {"verified": True, "line": 33} == _breakpoint(33, moved)

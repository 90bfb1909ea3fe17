"""Facts about the small debugger: against the real debugpy, and against peers that misbehave."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from relay_client.dap import DapClient, RequestFailed
from relay_core.dap.framing import MessageDecoder, encode
from relay_core.errors import ConnectionLost, ProtocolError
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.streams import stream_pair

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SCRIPT = """\
import threading
from relay_agent.debuggee.debugger import debugger

def work(number):
    doubled = 2 * number
    return doubled

print(debugger.arm(), flush=True)
debugger.wait_for_attach(3600, threading.Event())
print(sum(work(number) for number in range(10)))
"""


@contextlib.asynccontextmanager
async def connected(handler: Handler) -> AsyncIterator[DapClient]:
    """A client that is connected to a server of the test."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, await DapClient.connect(*server.sockets[0].getsockname()) as client:
        yield client


def answering(*replies: dict[str, object]) -> Handler:
    """Return a server that sends these messages for each request, which they answer if they are responses."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = MessageDecoder()
        while data := await reader.read(4096):
            for request in decoder.receive_data(data):
                for reply in replies:
                    writer.write(encode({"request_seq": request["seq"], **reply}))

    return handler


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_session_with_debugpy(tmp_path):
    """A conditional breakpoint in the real debugpy is hit; stack, evaluation and step are those of the job."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    async with (
        job(f"import runpy; runpy.run_path({str(script)!r})") as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        taken = await client.attach(
            {str(script): [{"line": 5, "condition": "number == 7"}]}, justMyCode=False, within=DEADLINE
        )
        assert [one["verified"] for one in taken[str(script)]] == [True]
        thread = (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]
        frame = (await client.request("stackTrace", {"threadId": thread}, within=DEADLINE))["stackFrames"][0]
        assert (frame["name"], frame["line"]) == ("work", 5)
        await client.request("next", {"threadId": thread}, within=DEADLINE)
        stopped = await client.wait_for_event(
            "stopped", matching=lambda body: body["reason"] == "step", within=DEADLINE
        )
        thread = stopped["body"]["threadId"]
        frame = (await client.request("stackTrace", {"threadId": thread}, within=DEADLINE))["stackFrames"][0]
        result = await client.request("evaluate", {"expression": "doubled", "frameId": frame["id"]}, within=DEADLINE)
        assert (frame["line"], result["result"]) == (6, "14")
        with pytest.raises(RequestFailed, match="the debugger refused 'evaluate': .*nonsense"):
            await client.request(
                "evaluate", {"expression": "nonsense", "frameId": frame["id"], "context": "watch"}, within=DEADLINE
            )
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        assert await running.finish() == (0, ["90"], "")


async def test_second_debugger_is_refused_at_once():
    """Where a debugger is attached already, attaching fails with debugpy's reason and not with a time-out."""
    async with job(SCRIPT + "sys.stdin.readline()") as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as first:
            await first.attach({}, within=DEADLINE)
            async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as second:
                with pytest.raises(RequestFailed, match="the debugger refused 'attach': .*already being debugged"):
                    await second.attach({}, within=DEADLINE)
        await running.finish()


async def test_nothing_listens():
    """A refused connection is a ConnectionLost."""
    with pytest.raises(ConnectionLost, match="nothing is listening on 127.0.0.1:"):
        await DapClient.connect("127.0.0.1", free_port())


async def test_no_answer_in_time():
    """A request and an event that do not come end with their names."""
    async with connected(silent) as client:
        with pytest.raises(RequestFailed, match=r"no response to 'threads' within 0\.05 s"):
            await client.request("threads", within=0.05)
        with pytest.raises(RequestFailed, match="no event 'stopped' or 'terminated' within 0 s"):
            await client.wait_for_event("stopped", "terminated", within=0)


async def test_refusal_without_a_reason():
    """The error for a refusal without a reason states that no reason was given."""
    async with connected(answering({"type": "response", "success": False})) as client:
        with pytest.raises(RequestFailed, match="the debugger refused 'threads': no reason given"):
            await client.request("threads")


async def test_a_body_that_is_not_an_object():
    """A request whose response has a list as its body fails."""
    async with connected(answering({"type": "response", "success": True, "body": [1]})) as client:
        with pytest.raises(RequestFailed, match=r"^the job's debugger sent a message that could not be read$"):
            await client.request("threads")


async def test_events_are_kept_until_taken():
    """An event that comes before anybody waits is taken once, by the first whose condition it meets."""
    event = {"type": "event", "event": "output"}
    replies = [{**event, "body": {"output": text}} for text in ("one", "two")]
    async with connected(answering(*replies, {"type": "response", "success": True})) as client:
        await client.request("threads")
        two = await client.wait_for_event("output", matching=lambda body: body["output"] == "two")
        one = await client.wait_for_event("output")
        assert (one["body"]["output"], two["body"]["output"]) == ("one", "two")
        with pytest.raises(RequestFailed):
            await client.wait_for_event("output", within=0)


async def test_lost_connection_ends_every_wait():
    """When the peer closes, requests and waits fail at once and not at their deadlines, later ones as well."""

    async def hang_up(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with connected(hang_up) as client:
        results = await asyncio.wait_for(
            asyncio.gather(
                client.request("threads", within=3600),
                client.wait_for_event("x", within=3600),
                return_exceptions=True,
            ),
            DEADLINE,
        )
        assert [type(result) for result in results] == [ConnectionLost] * 2
        with pytest.raises(ConnectionLost):
            await client.request("threads")


async def test_foreign_protocol():
    """A peer that does not speak DAP ends the session with a ProtocolError."""

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n\r\n")
        await writer.drain()

    async with connected(greet) as client:
        with pytest.raises(ProtocolError, match="a header has no Content-Length"):
            await client.wait_for_event("initialized")


async def test_requests_of_the_adapter_are_refused():
    """What a debug adapter asks of an editor is answered, so that it does not wait forever."""
    asked = asyncio.Queue()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode({"type": "request", "seq": 5, "command": "runInTerminal"}))
        decoder = MessageDecoder()
        while not (answers := decoder.receive_data(await reader.read(4096))):
            pass
        asked.put_nowait(answers[0])

    async with connected(ask):
        answer = await asyncio.wait_for(asked.get(), DEADLINE)
    assert (answer["request_seq"], answer["success"], answer["command"]) == (5, False, "runInTerminal")


async def test_any_stream_will_do():
    """A client speaks over any ByteStream, closes it at its end, and takes any event when none is named."""
    here, there = stream_pair()
    async with DapClient(here) as client:
        asking = asyncio.ensure_future(client.request("threads", within=None))
        (request,) = MessageDecoder().receive_data(await there.read())
        await there.write(encode({"type": "event", "event": "thread"}))
        await there.write(
            encode({"type": "response", "request_seq": request["seq"], "success": True, "body": {"x": 1}})
        )
        assert await asking == {"x": 1}
        assert (await client.wait_for_event(within=None))["event"] == "thread"
        there.abort()
        with pytest.raises(ConnectionLost, match="the other end was aborted"):
            await client.wait_for_event(within=None)
    assert here.closed


async def test_stream_that_does_not_close(monkeypatch):
    """A stream whose last bytes do not leave is dropped."""
    monkeypatch.setattr("relay_client.dap.CLOSE_TIMEOUT", 0.01)
    here, _ = stream_pair()
    monkeypatch.setattr(here, "close", asyncio.Event().wait)
    async with DapClient(here):
        pass
    assert here.aborted


async def test_refusal_keeps_the_adapters_words():
    """The reason of a refusal is the adapter's, without our sentence around it."""
    async with connected(answering({"type": "response", "success": False, "message": "no frame"})) as client:
        with pytest.raises(RequestFailed) as refused:
            await client.request("scopes")
        assert refused.value.reason == "no frame"


async def test_late_responses_are_dropped():
    """A response that arrives late, to no request or to a failed `attach` is not kept; it ends the request."""
    near, far = stream_pair()
    async with DapClient(near) as client:
        attaching = asyncio.ensure_future(client.attach({}, within=0.05))
        await far.read()
        await far.write(encode({"seq": 1, "type": "response", "request_seq": 1, "success": True}))
        with pytest.raises(RequestFailed, match="no event 'initialized'"):
            await attaching
        with pytest.raises(RequestFailed, match="no response to 'evaluate'"):
            await client.request("evaluate", within=0.001)
        assert {2, 3} == client.abandoned
        for number in (2, 3, 99):
            await far.write(encode({"seq": number, "type": "response", "request_seq": number, "success": True}))
        await far.write(encode({"seq": 3, "type": "event", "event": "stopped"}))
        await client.wait_for_event("stopped", within=DEADLINE)
        assert ({}, set()) == (client._responses, client.abandoned)


async def test_each_event_is_examined_once_in_a_wait():
    """The events that a wait does not take cost nothing when further events arrive."""
    near, far = stream_pair()
    examined: list[int] = []

    def is_last(body: dict[str, int]) -> bool:
        examined.append(body["n"])
        return body["n"] == 199

    async with DapClient(near) as client:
        waiting = asyncio.ensure_future(client.wait_for_event("output", matching=is_last, within=DEADLINE))
        for number in range(200):
            await far.write(encode({"seq": 1, "type": "event", "event": "output", "body": {"n": number}}))
            while number not in examined:
                await asyncio.sleep(0)
        assert 199 == (await waiting)["body"]["n"]
        assert [*range(200)] == examined
        assert 0 == (await client.wait_for_event("output", within=DEADLINE))["body"]["n"]

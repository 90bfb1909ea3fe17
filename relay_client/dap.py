"""A DAP client without a user interface: requests, events, and debugpy's attach sequence, over tunnels or TCP."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.dap.framing import MessageDecoder, encode
from relay_core.dap.messages import Body, Event, Message, Request, Response, is_message, response_to
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.streams.bridge import ByteStream
from relay_core.net.tasks import TaskSet, close_writer

_CURRENT = " (Current frame)"
"""pydevd appends this to the name of the frame in which a thread is stopped while an exception is shown."""


def function_of(frame: Body) -> str:
    """Return the name of a StackFrame's function, as the program defines it."""
    return str(frame["name"]).removesuffix(_CURRENT)


# A TCP connection as a `ByteStream`, for a debugger on this machine or behind a forwarded port.

READ_SIZE = 64 * 1024


class TcpStream:
    """An open TCP connection; `relay_core.net.streams.bridge` documents the contract of its methods."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Return the next bytes, or b"" at the end."""
        try:
            return await self._reader.read(READ_SIZE)
        except OSError as error:
            raise _connection_lost(error) from error

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            if not self._writer.is_closing():  # if it is, `drain` reports why
                self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise _connection_lost(error) from error

    async def write_eof(self) -> None:
        """Close the sending direction."""
        if not self._writer.is_closing():
            self._writer.write_eof()

    async def close(self) -> None:
        """Close both directions."""
        await close_writer(self._writer)

    def abort(self, reason: str = "") -> None:  # noqa: ARG002 - TCP cannot transmit a reason
        """Close the connection without sending the buffered bytes."""
        self._writer.transport.abort()


def _connection_lost(error: OSError) -> ConnectionLost:
    return ConnectionLost(f"the connection to the debug adapter failed: {error.strerror or type(error).__name__}")


# A DAP client without a user interface: requests, events, and debugpy's attach sequence.
#
# The demo, the tests and `relay-client pdb` use it. Every wait ends as soon as the connection closes.

DEFAULT_TIMEOUT = 10.0
"""Seconds to wait for one response or event; a debugger on the same machine needs milliseconds."""
MAX_KEPT_EVENTS = 10_000
"""Maximum number of events kept for `wait_for_event`; if there are more, the oldest are dropped. A job sends one or two
events for each line that it prints."""
CLOSE_TIMEOUT = 2.0
"""Seconds to wait until the last bytes have been sent; after that, the connection is aborted."""

T = TypeVar("T")


class RequestFailed(RelayDebugError):
    """The debug adapter rejected a request, or did not respond in time; the sentence contains the adapter's reason.

    Args:
        reason: The `message` of the adapter's response, or "" if it did not respond.
    """

    def __init__(self, sentence: str, *, reason: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Raise RequestFailed if the block fails because a message lacks a field or a field has the wrong type."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise RequestFailed("the job's debugger sent a message that could not be read") from error


class DapClient:
    """One debug session, over TCP or over any other stream to a debug adapter.

        async with await DapClient.connect("127.0.0.1", 5678) as client:
            await client.attach({"train.py": [{"line": 40}]})
            stopped = await client.wait_for_event("stopped")

    All methods that wait raise RequestFailed if the adapter rejects the request or `within` seconds have passed, and
    ConnectionLost or ProtocolError if the connection has ended. If `within` is None, they wait without limit.

    Args:
        stream: A stream that is connected to the adapter; this client closes it.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._sequence = itertools.count(1)
        self._responses: dict[int, Response | None] = {}
        """By number of a request that waits for its response: the response, once it has arrived."""
        self.abandoned: set[int] = set()
        """Numbers of the requests that have no response yet, and whose callers no longer wait for one."""
        self._events: deque[Event] = deque(maxlen=MAX_KEPT_EVENTS)
        self._received = 0
        """Number of events that have arrived."""
        self._changed = asyncio.Event()
        """Set, and replaced by a new one, when a message has arrived or the connection has ended."""
        self._lost: RelayDebugError | None = None
        self._tasks = TaskSet()
        self._tasks.spawn(self._receive(), name="DAP receiver")

    async def __aenter__(self) -> DapClient:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    @classmethod
    async def connect(cls, host: str, port: int, *, within: float = DEFAULT_TIMEOUT) -> DapClient:
        """Return a client that is connected to a debug adapter, or to a port that is forwarded to one.

        Raises:
            ConnectionLost: nothing is listening there, or the connection was not accepted in time.
        """
        try:
            async with timeout(within):
                reader, writer = await asyncio.open_connection(host, port)
        except (OSError, *TIMEOUT_ERRORS) as error:
            raise ConnectionLost(f"nothing is listening on {host}:{port}") from error
        return cls(TcpStream(reader, writer))

    async def request(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, within: float | None = DEFAULT_TIMEOUT
    ) -> Body:
        """Send a request and return the body of its response."""
        async with self._sent(command, arguments) as number:
            return await self._response_to(command, number, within)

    async def wait_for_event(
        self, *names: str, matching: Callable[[Body], bool] = lambda _body: True, within: float | None = DEFAULT_TIMEOUT
    ) -> Event:
        """Remove and return the oldest kept event with one of these names, or wait for the next one.

        Without names, any event matches.
        """
        seen = 0

        def find() -> Event | None:
            nonlocal seen
            new = reversed([*itertools.islice(reversed(self._events), self._received - seen)]) if seen else self._events
            seen = self._received
            return self._pop_event(new, names, matching)

        return await self._wait_for(find, f"no event {' or '.join(map(repr, names)) or 'at all'}", within)

    async def attach(
        self,
        breakpoints: Mapping[str, Sequence[Body]],
        *,
        exceptions: Sequence[str] | None = None,
        pause: bool = False,
        within: float = DEFAULT_TIMEOUT,
        **arguments: Any,
    ) -> dict[str, list[Body]]:
        """Attach to the job, set breakpoints before it continues, and return the adapter's Breakpoint for each.

        Args:
            breakpoints: DAP SourceBreakpoints by source path.
            exceptions: Exceptions that stop the job: debugpy's filters "uncaught", "raised" and "userUnhandled"; None
                for debugpy's default.
            pause: Whether to stop the job before it continues; a job that is waiting for its debugger then stops right
                after the wait.
            within: Seconds for each response of the sequence.
            arguments: Further attach arguments, such as pathMappings.
        """
        await self.request("initialize", {"clientID": "relay-client", "adapterID": "debugpy"}, within=within)
        async with self._sent("attach", {"type": "debugpy", "request": "attach", **arguments}) as attach:

            def response_or_event() -> Response | Event | None:
                return self._responses[attach] or self._pop_event(self._events, ("initialized",), lambda _body: True)

            first: Response | Event = await self._wait_for(response_or_event, "no event 'initialized'", within)
            if first["type"] == "response":  # an error: debugpy reports success only after configurationDone
                _body_of("attach", first)
            try:
                results = {
                    path: await self.set_breakpoints(path, here, within=within) for path, here in breakpoints.items()
                }
                if exceptions is not None:
                    await self.request("setExceptionBreakpoints", {"filters": list(exceptions)}, within=within)
                if pause:
                    await self.request("pause", {"threadId": 1}, within=within)  # all threads, whatever the id
                await self.request("configurationDone", within=within)
                await self._response_to("attach", attach, within)
            except ConnectionLost:
                if (response := self._responses[attach]) is not None:
                    _body_of("attach", response)  # raises the reason for which the session has ended
                raise
        return results

    async def set_breakpoints(
        self, path: str, breakpoints: Sequence[Body], *, within: float = DEFAULT_TIMEOUT
    ) -> list[Body]:
        """Replace the breakpoints of one source file, and return the adapter's Breakpoint for each."""
        arguments = {"source": {"path": path}, "breakpoints": list(breakpoints)}
        results: list[Body] = (await self.request("setBreakpoints", arguments, within=within)).get("breakpoints", [])
        return results

    async def close(self) -> None:
        """Close the connection. Debugpy then removes the breakpoints and resumes the job."""
        await self._tasks.cancel_all()
        self._end(ConnectionLost("the debug session was closed", code=1000))
        try:
            async with timeout(CLOSE_TIMEOUT):
                await self._stream.close()
        except (ConnectionLost, *TIMEOUT_ERRORS):
            self._stream.abort("the debugger has disconnected")

    @contextlib.asynccontextmanager
    async def _sent(self, command: str, arguments: Mapping[str, Any] | None) -> AsyncIterator[int]:
        """Send a request, and keep its response until the end of the block; the value is the request's number."""
        if self._lost:
            raise self._lost
        number = next(self._sequence)
        self._responses[number] = None
        request: Request = {"seq": number, "type": "request", "command": command, "arguments": dict(arguments or {})}
        try:
            await self._stream.write(encode(request))
            yield number
        finally:
            if self._responses.pop(number) is None:
                self.abandoned.add(number)

    async def _response_to(self, command: str, number: int, within: float | None) -> Body:
        found = await self._wait_for(lambda: self._responses[number], f"no response to '{command}'", within)
        return _body_of(command, found)

    async def _wait_for(self, find: Callable[[], T | None], problem: str, within: float | None) -> T:
        """Call `find` now and after each message until its result is not None, and return that result.

        Raises:
            RequestFailed: `within` seconds have passed; `problem` is the start of the sentence.
        """
        try:
            async with timeout(within):
                while (found := find()) is None:
                    if self._lost:
                        raise self._lost
                    await self._changed.wait()
                return found
        except TIMEOUT_ERRORS:
            raise RequestFailed(f"{problem} within {within:g} s") from None

    def _pop_event(
        self, events: Iterable[Event], names: Sequence[str], matching: Callable[[Body], bool]
    ) -> Event | None:
        for event in events:
            if (not names or event["event"] in names) and matching(event.get("body") or {}):
                self._events.remove(event)
                return event
        return None

    async def _receive(self) -> None:
        decoder = MessageDecoder()
        try:
            while data := await self._stream.read():
                for message in decoder.receive_data(data):
                    await self._dispatch(message)
            decoder.receive_eof()
            self._end(ConnectionLost("the debug adapter closed the connection"))
        except RelayDebugError as error:
            self._end(error)

    async def _dispatch(self, message: Message) -> None:
        if is_message(message, "response"):
            self.abandoned.discard(message["request_seq"])
            if message["request_seq"] in self._responses:
                self._responses[message["request_seq"]] = message
        elif is_message(message, "event"):
            self._events.append(message)
            self._received += 1
        elif is_message(message, "request"):  # the adapter would otherwise wait for a response
            response = response_to(message, success=False)
            await self._stream.write(encode({**response, "seq": next(self._sequence), "message": "unsupported"}))
        self._notify()

    def _end(self, reason: RelayDebugError) -> None:
        self._lost = self._lost or reason
        self._notify()

    def _notify(self) -> None:
        """Wake every waiting coroutine."""
        self._changed.set()
        self._changed = asyncio.Event()


def _body_of(command: str, response: Response) -> Body:
    """Return the body of a response.

    Raises:
        RequestFailed: the response is an error, or its body is not an object.
    """
    with readable():
        if not response.get("success"):
            reason = str(response.get("message") or "no reason given")
            raise RequestFailed(f"the debugger refused '{command}': {reason}", reason=reason)
        return dict(response.get("body") or {})


# A debug session of a program that is not an editor: `relay-client pdb` and the MCP server.

ATTACH_TIMEOUT = 60.0
"""Seconds to wait for each response while attaching; the job first imports debugpy, which may take 30 s."""
DETACH_TIMEOUT = 5.0
"""Seconds to wait for the response to `disconnect`; without one, the job continues when the connection closes."""

HowEnded = Callable[[], Awaitable[str]]
"""Waits for the announcement of how the job has ended, and returns it as the end of a sentence; "" if unknown."""


class DebugSession:
    """Whether a process is running, stopped or has ended; an async context manager that cancels its tasks on exit.

    Args:
        client: Connected, but not yet attached.
        how_ended: Called when the debugger has reported the end of the process.
    """

    subject = "the job"
    """The process, in the sentence about its end."""
    response_timeout: float | None = DEFAULT_TIMEOUT
    """Seconds to wait for the response to each request."""
    attach_arguments: ClassVar[Mapping[str, Any]] = {}
    """Further arguments of `attach`."""

    def __init__(self, client: DapClient, how_ended: HowEnded | None = None) -> None:
        self.client = client
        self.attached = False
        self.running = False
        self.end_reason = ""
        """Why the session has ended; "" while it lasts."""
        self.lost: RelayDebugError | None = None
        """Why the connection was lost, unless the process has ended."""
        self.reason: Body = {}
        """The body of the last `stopped` event."""
        self.is_over = False
        """True once the debugger has reported the end, or the connection is lost; `end_reason` may follow."""
        self._how_ended = how_ended
        self._changed = asyncio.Event()
        self._detaching = False
        self._tasks = TaskSet()

    async def __aenter__(self) -> DebugSession:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self._tasks.cancel_all()

    async def attach(self, breakpoints: Mapping[str, Sequence[Body]], *, pause: bool = False) -> dict[str, list[Body]]:
        """Attach, and return the adapter's Breakpoint for each breakpoint.

        Args:
            breakpoints: DAP SourceBreakpoints by source path.
            pause: Whether to stop the process.
        """
        results = await self.client.attach(
            breakpoints,
            exceptions=["uncaught"],
            pause=pause,
            within=ATTACH_TIMEOUT,
            justMyCode=False,
            **self.attach_arguments,
        )
        self.attached = self.running = True
        self._tasks.spawn(self._receive_events(), name="DAP events")
        return results

    async def detach(self) -> None:
        """Detach from the process, which continues."""
        self._detaching = True
        if not self.end_reason:
            await self.client.request("disconnect", {"terminateDebuggee": False}, within=DETACH_TIMEOUT)

    async def request(self, command: str, **arguments: Any) -> Body:
        """Send a request to the adapter and return the body of its response."""
        return await self.client.request(command, arguments, within=self.response_timeout)

    @property
    def is_stopped(self) -> bool:
        """True if the process is stopped, and can be resumed."""
        return not (self.running or self.is_over)

    @property
    def stopped_thread(self) -> int:
        """Id of the thread that has stopped."""
        with readable():
            return int(self.reason.get("threadId") or 0)

    async def move(self, command: str, thread: int | None = None, **arguments: Any) -> None:
        """Resume the stopped process through a DAP request, such as "continue" or "next".

        Args:
            command: The request.
            thread: The thread that is moved; None for the one that has stopped.
            arguments: Further arguments of the request.

        Raises:
            RequestFailed: the process is still stopped if the adapter has given a reason.
        """
        thread = self.stopped_thread if thread is None else thread
        self.running = True
        try:
            await self.request(command, threadId=thread, **arguments)
        except RequestFailed as error:
            if error.reason:
                self.running = False
            raise

    async def wait(self, within: float | None = None) -> bool:
        """Wait until the process is stopped or has ended; return False if it still runs after `within` seconds."""
        try:
            async with timeout(within):
                while self.running and not self.end_reason:
                    await self._changed.wait()
        except TIMEOUT_ERRORS:
            return False
        return True

    async def _receive_events(self) -> None:
        try:
            while not self.end_reason:
                event = await self.client.wait_for_event(within=None)
                with readable():
                    self._handle_event(event["event"], dict(event.get("body") or {}))
                if event["event"] == "terminated":
                    await self._terminated()
        except RelayDebugError as error:
            self.lost = error
            self._end(error.sentence)

    def _handle_event(self, name: str, body: Body) -> None:
        if name == "stopped":
            self.running, self.reason = False, body
            self._notify()
        elif name == "exited":
            self._end(f"{self.subject} has ended with exit code {body.get('exitCode')}")

    async def _terminated(self) -> None:
        self.is_over = True
        how = "" if self.end_reason or self._detaching or self._how_ended is None else await self._how_ended()
        self._end(f"{self.subject} {how or 'has ended'}")

    def _end(self, reason: str) -> None:
        self.end_reason = self.end_reason or reason
        self.running, self.is_over = False, True
        self._notify()

    def _notify(self) -> None:
        """Wake the waiting callers."""
        self._changed.set()
        self._changed = asyncio.Event()

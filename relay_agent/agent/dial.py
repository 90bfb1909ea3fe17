"""How an agent connects a client's stream to a target.

debugpy's adapter must not be dialled without need: one connect-and-close ends its accept thread permanently, and every
later attach hangs (microsoft/debugpy#1308). So nothing is dialled for a client that has already gone. For a client
whose first bytes are `Content-Length:`, debugpy's greeting is read before anything can close the connection
(`relay_agent.agent.adapter_greeting`). A target that is known to speak DAP is dialled for such clients only.
"""

from __future__ import annotations

import asyncio

from relay_agent.agent.adapter_greeting import GreetedStream
from relay_agent.agent.targets import Target, TargetGone
from relay_agent.prefetch.stream import AskAhead
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.dap.framing import BEGINNING
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.net.streams.interposed import InterposedStream
from relay_core.net.streams.pump import READ_SIZE, Traffic, pump, set_nodelay
from relay_core.net.streams.stream import ByteStream, DirectStream

__all__ = ["serve_stream"]

FIRST_BYTES_TIMEOUT = 30.0
"""Seconds a debugger may take to send its first request; VS Code sends it at once."""
SERVER_FIRST_DELAY = 0.3
"""Seconds of silence after which a client is taken to wait for the server to speak first (ssh, databases)."""
GREETING_TIMEOUT = 10.0
"""Seconds for debugpy's greeting; it comes within milliseconds unless the machine is overloaded."""
CONNECT_TIMEOUT = 10.0
DEBUGGER_PATIENCE = 20.0
"""Seconds for a debug adapter to start listening: an editor may be there before the job (`relay-agent serve --dap`)."""
DIAL_INTERVAL = 0.2


async def serve_stream(target: Target, stream: DirectStream, traffic: Traffic, *, ask_ahead: bool = False) -> None:
    """Carry one client's stream to `target` and back until both have ended.

    Args:
        target: What is dialled.
        stream: The client's.
        traffic: Counts what is carried.
        ask_ahead: Whether the client supports prefetch.

    Raises:
        ProtocolError: the client of a DAP target does not speak DAP; nothing was dialled.
        ConnectionLost: either side broke, or the target does not answer.
        TargetGone: the target has just ended; the stream is left to the caller to refuse.
        RelayDebugError: the target cannot be woken.
    """
    interposed = InterposedStream(stream, AskAhead()) if ask_ahead else None
    stream = interposed or stream
    try:
        first = await _first_bytes(stream, patience=FIRST_BYTES_TIMEOUT if target.dap_only else SERVER_FIRST_DELAY)
        is_dap = first.startswith(BEGINNING)
        if target.dap_only and not is_dap:
            raise ProtocolError("a client does not speak the debug adapter protocol; debugpy was not disturbed")
        reader, writer = await _dial(target, patience=DEBUGGER_PATIENCE if target.dap_only else 0.0)
    except TargetGone:
        raise
    except BaseException as error:
        stream.abort(error.sentence if isinstance(error, RelayDebugError) else "")
        raise
    set_nodelay(writer)
    if interposed is not None:
        interposed.inject_into(writer)
    writer.write(first)
    traffic.received += len(first)
    if is_dap:
        stream = await _pass_greeting(reader, writer, stream, traffic)
    await pump(reader, writer, stream, traffic)


async def _first_bytes(stream: ByteStream, *, patience: float) -> bytes:
    """Return enough bytes to recognise a debugger, or what came within `patience` seconds.

    Raises:
        ConnectionLost: the client left before it sent anything.
    """
    received = b""
    try:
        async with timeout(patience):
            while len(received) < len(BEGINNING) and BEGINNING.startswith(received):
                chunk = await stream.read()
                if not chunk:
                    raise ConnectionLost("the client left before it sent anything", code=1000)
                received += chunk
    except TIMEOUT_ERRORS:
        pass  # a client that waits for the server to speak
    return received


async def _dial(target: Target, *, patience: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; a port that refuses is tried again for `patience` seconds."""
    host, port = await target.locate()
    deadline = asyncio.get_running_loop().time() + patience
    try:
        async with timeout(patience + CONNECT_TIMEOUT):
            while True:
                try:
                    return await asyncio.open_connection(host, port, limit=READ_SIZE)
                except ConnectionRefusedError:
                    if asyncio.get_running_loop().time() >= deadline:
                        raise
                await asyncio.sleep(DIAL_INTERVAL)
    except (OSError, *TIMEOUT_ERRORS):
        raise ConnectionLost(
            f"nothing answers on {host}:{port}",
            hint="the program that listens there has ended or has not started yet",
        ) from None


async def _pass_greeting(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: DirectStream, traffic: Traffic
) -> DirectStream:
    """Read debugpy's first bytes before anything else can happen to its socket, and pass them on.

    Returns:
        The stream by which the rest is to be carried.
    """
    try:
        async with timeout(GREETING_TIMEOUT):
            greeting = await reader.read(READ_SIZE)
    except (OSError, *TIMEOUT_ERRORS):
        greeting = b""
    if not greeting:
        error = ConnectionLost("debugpy took the connection and did not answer")
        stream.abort(error.sentence)
        writer.transport.abort()
        raise error
    greeted = GreetedStream(stream)
    await greeted.write(greeting)
    traffic.sent += len(greeting)
    return greeted

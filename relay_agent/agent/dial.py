"""How an agent connects a client's stream to a target.

debugpy's adapter must not be dialled without need: one connect-and-close ends its accept thread permanently, and every
later attach hangs (microsoft/debugpy#1308). So nothing is dialled for a client that has already gone. For a client
whose first bytes are `Content-Length:`, debugpy's greeting is read before anything can close the connection
(`relay_core.dap.adapter_greeting`). A target that is known to speak DAP is dialled for such clients only.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from relay_agent.agent.targets import Target, TargetGone
from relay_agent.prefetch.layer import PrefetchLayer
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.dap.adapter_greeting import GreetingGuard
from relay_core.dap.framing import HEADER_START
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.layers.layer import Layer
from relay_core.net.streams.bridge import Traffic, carry_bytes
from relay_core.net.streams.endpoint import LocalEndpoint, connect_local
from relay_core.net.streams.stream import ByteStream, PeerStream

__all__ = ["ClientStream", "serve_stream"]

FIRST_BYTES_TIMEOUT = 30.0
"""Seconds a debugger may take to send its first request; VS Code sends it at once."""
SERVER_FIRST_DELAY = 0.3
"""Seconds of silence after which a client is taken to wait for the server to speak first (ssh, databases)."""
CONNECT_TIMEOUT = 10.0
DEBUGGER_PATIENCE = 20.0
"""Seconds for a debug adapter to start listening: an editor may be there before the job (`relay-agent serve --dap`)."""
DIAL_INTERVAL = 0.2


class ClientStream(ByteStream, PeerStream, Protocol):
    """A client's stream: its first bytes are read before anything is dialled, the others are pushed."""


async def serve_stream(target: Target, stream: ClientStream, traffic: Traffic, *, ask_ahead: bool = False) -> None:
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
    try:
        first = await _first_bytes(stream, patience=FIRST_BYTES_TIMEOUT if target.dap_only else SERVER_FIRST_DELAY)
        is_dap = first.startswith(HEADER_START)
        if target.dap_only and not is_dap:
            raise ProtocolError("a client does not speak the debug adapter protocol; debugpy was not disturbed")
        local = await _dial(target, patience=DEBUGGER_PATIENCE if target.dap_only else 0.0)
    except TargetGone:
        raise
    except BaseException as error:
        stream.abort(error.sentence if isinstance(error, RelayDebugError) else "")
        raise
    layers: list[Layer] = [GreetingGuard(asyncio.get_running_loop().time())] if is_dap else []
    if ask_ahead:
        layers.append(PrefetchLayer())
    await carry_bytes(local, stream, layers, traffic=traffic, first=first)


async def _first_bytes(stream: ByteStream, *, patience: float) -> bytes:
    """Return enough bytes to recognise a debugger, or what came within `patience` seconds.

    Raises:
        ConnectionLost: the client left before it sent anything.
    """
    received = b""
    try:
        async with timeout(patience):
            while len(received) < len(HEADER_START) and HEADER_START.startswith(received):
                chunk = await stream.read()
                if not chunk:
                    raise ConnectionLost("the client left before it sent anything", code=1000)
                received += chunk
    except TIMEOUT_ERRORS:
        pass  # a client that waits for the server to speak
    return received


async def _dial(target: Target, *, patience: float) -> LocalEndpoint:
    """Connect; a port that refuses is tried again for `patience` seconds."""
    host, port = await target.locate()
    deadline = asyncio.get_running_loop().time() + patience
    try:
        async with timeout(patience + CONNECT_TIMEOUT):
            while True:
                try:
                    return await connect_local(host, port)
                except ConnectionRefusedError:
                    if asyncio.get_running_loop().time() >= deadline:
                        raise
                await asyncio.sleep(DIAL_INTERVAL)
    except (OSError, *TIMEOUT_ERRORS):
        raise ConnectionLost(
            f"nothing answers on {host}:{port}",
            hint="the program that listens there has ended or has not started yet",
        ) from None

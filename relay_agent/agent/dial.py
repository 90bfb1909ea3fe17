"""Connections between a client's streams and targets: to a target, or from it to an editor that listens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable

from relay_agent.agent.attachments import DebugStream
from relay_agent.agent.layers import DebuggerWatch, EndObserver, GreetingGuard
from relay_agent.agent.prefetch_layer import PrefetchLayer
from relay_agent.agent.targets import Target, TargetGone
from relay_core.agent_api.metadata import StreamMetadata
from relay_core.agent_api.requests import Ready
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.dap.framing import HEADER_START
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.layers.layer import Layer
from relay_core.layers.stop_observer import ObservedStop, StopObserver
from relay_core.net.loopback import PeerCheck, until_accepted
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.streams.bridge import ByteStream, Traffic, carry_bytes
from relay_core.net.streams.local_endpoint import LocalEndpoint, connect_local
from relay_core.net.streams.local_server import LocalServer
from relay_core.net.tasks import TaskSet
from relay_core.program.run import EXHAUSTED
from relay_core.records import encode
from relay_core.socket_tables import own_user, shared_tables

logger = logging.getLogger(__name__)


# Connection of a client's stream to a target.
#
# If a connection to debugpy's adapter is closed early, the adapter's accept thread exits permanently, and every later
# attempt to attach hangs (microsoft/debugpy#1308). So the agent does not connect on behalf of a client that has already
# disconnected. For a client whose first bytes are `Content-Length:`, the connection stays open until debugpy has sent
# its greeting (`GreetingGuard`). For other clients, the agent does not connect to targets that are known to use DAP.

FIRST_BYTES_TIMEOUT = 30.0
"""Timeout in seconds for the first request from a debug client; VS Code sends it immediately."""
SERVER_FIRST_DELAY = 0.3
"""Seconds without data after which the client is assumed to use a protocol in which the server sends first, such as
ssh."""
CONNECT_TIMEOUT = 10.0
DEBUGGER_PATIENCE = 20.0
"""Timeout in seconds for a debug adapter to start listening: an editor may connect before the job starts (`relay-agent
serve --dap`)."""
DIAL_INTERVAL = 0.2


class DescriptorsExhausted(ConnectionLost):
    """The agent cannot connect to a target, because it has too many open files."""


async def serve_stream(
    target: Target,
    stream: SessionStream,
    traffic: Traffic,
    *,
    prefetch: bool = False,
    on_end: Callable[[], None] = lambda: None,
    on_stop: Callable[[ObservedStop | None], None] = lambda _stop: None,
) -> None:
    """Connect a client's stream to a target, and carry bytes until both have ended.

    Args:
        target: The target to connect to.
        stream: The client's stream. Its first bytes are read before the agent connects; later bytes are pushed.
        traffic: Receives the byte counts.
        prefetch: Whether the client supports prefetch.
        on_end: Called when a debugger has ended its session, or the target has closed its connection.
        on_stop: Called when a debugger has stopped the process, again when the location is known, and with None when
            the process resumes.

    Raises:
        ProtocolError: the client of a DAP target does not use DAP; no connection to the target was made.
        ConnectionLost: the connection to one side was lost, or the target is not listening.
        TargetGone: the target has just exited; the caller must abort the stream.
        RelayDebugError: the target's debugger could not be started.
    """
    try:
        first = await _first_bytes(stream, patience=FIRST_BYTES_TIMEOUT if target.dap_only else SERVER_FIRST_DELAY)
        is_dap = first.startswith(HEADER_START)
        if target.dap_only and not is_dap:
            raise ProtocolError("only programs that use the Debug Adapter Protocol can connect to debugpy")
        local = await _dial(target, patience=DEBUGGER_PATIENCE if target.dap_only else 0.0)
    except TargetGone:
        raise
    except BaseException as error:
        stream.abort(error.sentence if isinstance(error, RelayDebugError) else "")
        raise
    name = "debugpy's adapter" if is_dap else "the connection to the port"
    async with TaskSet() as checks:
        layers: list[Layer] = [EndObserver(on_end, is_dap=is_dap)]
        if is_dap:
            layers.append(DebuggerWatch(lambda: checks.spawn(target.is_running(), name=f"check of {target}")))
            layers.append(StopObserver(on_stop, is_editor_local=False))
            layers.append(GreetingGuard(asyncio.get_running_loop().time()))
        if prefetch:
            layers.append(PrefetchLayer())
        await carry_bytes(local, stream, layers, traffic=traffic, first=first, local_name=name)


async def _first_bytes(stream: ByteStream, *, patience: float) -> bytes:
    """Return enough bytes to recognize DAP, or the bytes that arrived within `patience` seconds.

    Raises:
        ConnectionLost: the client disconnected before sending anything.
    """
    received = b""
    with contextlib.suppress(*TIMEOUT_ERRORS):  # the client waits for the server to send first
        async with timeout(patience):
            while len(received) < len(HEADER_START) and HEADER_START.startswith(received):
                chunk = await stream.read()
                if not chunk:
                    raise ConnectionLost("the client disconnected before sending anything", code=1000)
                received += chunk
    return received


async def _dial(target: Target, *, patience: float) -> LocalEndpoint:
    """Connect to a target; if its port refuses connections, retry for `patience` seconds."""
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        # The target is located for each attempt: a debugger that was about to exit has a successor on another port.
        host, port = await target.locate()
        try:
            async with timeout(CONNECT_TIMEOUT):
                local = await connect_local(host, port)
                if target.is_own:  # another user may have taken over the port of a debugger that has exited
                    await until_accepted(local.transport, trust_unknown=True)
                return local
        except PermissionError as error:
            raise ConnectionLost(f"cannot connect to {host}:{port}: {error.strerror or error}") from None
        except (OSError, *TIMEOUT_ERRORS) as error:
            if isinstance(error, OSError) and error.errno in EXHAUSTED:
                raise DescriptorsExhausted(
                    "the agent has no file descriptors left", hint="raise the node's limit (ulimit -n)"
                ) from None
            is_refused = isinstance(error, ConnectionRefusedError)
            if not is_refused or asyncio.get_running_loop().time() >= deadline:
                raise ConnectionLost(
                    f"nothing is listening on {f'[{host}]' if ':' in host else host}:{port}",
                    hint="check whether the program has exited or has not started yet",
                ) from None
        await asyncio.sleep(DIAL_INTERVAL)


# Reverse connections: the editor listens on the laptop (`"listen"` in launch.json), and the job connects to it.
#
#     job: debugpy.connect(127.0.0.1:P) --> agent: P, any free port --> stream opened by the agent --> client --> editor
#
# Some teams have such configurations for the azure-debug-relay package. The client requests a reverse connection by
# opening a stream to `listen/<port>`, and ends it by closing that stream.
#
# Port P accepts only connections of the agent's own user. There may be several such connections, because child
# processes connect to port P too.


async def connect_to_editor(
    target: Target, driver: SessionDriver, stream: SessionStream, reports: DebugStream, *, prefetch: bool
) -> None:
    """Connect the job's debugger to the client's editor, and return when the client closes `stream`.

    Args:
        target: The process whose debugger is to connect.
        driver: The client's session.
        stream: The stream of the client's request; it receives the response.
        reports: Receives the stops of the process.
        prefetch: Whether the client supports prefetch.

    Raises:
        RelayDebugError: the job cannot connect; no response has been sent yet.
        ConnectionLost: the client has disconnected.
    """
    port = target.logical_port
    peers = PeerCheck(frozenset({own_user()}), lambda sentence: logger.warning("port %s: %s", port, sentence))
    if not shared_tables().shows_owners:
        logger.warning(
            "this system does not reveal which user is connecting, so any user of this machine can connect to the "
            "editor on port %s",
            port,
        )
    async with TaskSet() as connections:

        def accepted(local: LocalEndpoint) -> None:
            carrying = _carry(target, driver, local, reports, prefetch=prefetch)
            connections.spawn(carrying, name=f"reverse connection {port}")

        server = await LocalServer.open("127.0.0.1", 0, lambda: LocalEndpoint(accepted), peers.admits)
        try:
            await target.connect_to(server.port)
            await stream.write(json.dumps(encode(Ready())).encode() + b"\n")
            while await stream.read():
                pass
        finally:
            server.close()


async def _carry(
    target: Target, driver: SessionDriver, local: LocalEndpoint, reports: DebugStream, *, prefetch: bool
) -> None:
    port = target.logical_port
    try:
        stream = driver.open(port, encode(StreamMetadata(prefetch=prefetch)))
        async with TaskSet() as checks:
            watch = DebuggerWatch(lambda: checks.spawn(target.is_running(), name=f"check of {target}"))
            layers: list[Layer] = [watch, StopObserver(reports.stopped, is_editor_local=False)]
            layers += [PrefetchLayer()] if prefetch else []
            await carry_bytes(local, stream, layers)
    except ConnectionLost as lost:
        local.abort()
        logger.info("port %s: the editor disconnected: %s", port, lost.reason or lost.sentence)
    finally:
        reports.stopped(None)

"""Reverse connections: the editor listens on the laptop (`"listen"` in launch.json), and the job connects to it.

    job: debugpy.connect(127.0.0.1:P) --> agent: P, any free port --> stream opened by the agent --> client --> editor

Some teams have such configurations for the azure-debug-relay package. The client requests a reverse connection by
opening a stream to `listen/<port>`, and ends it by closing that stream.

Port P accepts only connections of the agent's own user. There may be several such connections, because child processes
connect to port P too.
"""

from __future__ import annotations

import json
import logging

from relay_agent.agent.attachments import DebugStream
from relay_agent.agent.layers import DebuggerWatch
from relay_agent.agent.targets import Target
from relay_agent.prefetch.layer import PrefetchLayer
from relay_core.agent_api.metadata import StreamMetadata
from relay_core.agent_api.requests import Ready
from relay_core.errors import ConnectionLost
from relay_core.layers.layer import Layer
from relay_core.layers.stop_observer import StopObserver
from relay_core.net.loopback import PeerCheck
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.streams.bridge import carry_bytes
from relay_core.net.streams.endpoint import LocalEndpoint
from relay_core.net.streams.local_server import listen_local
from relay_core.net.tasks import TaskSet
from relay_core.records import encode
from relay_core.socket_tables import own_user, shared_tables

__all__ = ["connect_to_editor"]

logger = logging.getLogger(__name__)


async def connect_to_editor(
    target: Target,
    driver: SessionDriver,
    stream: SessionStream,
    reports: DebugStream,
    *,
    prefetch: bool,
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

        server = await listen_local(accepted, "127.0.0.1", 0, peers.admits)
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

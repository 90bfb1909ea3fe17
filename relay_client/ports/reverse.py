"""The other direction: an editor that listens on a local port, and a job that dials it.

`listen` launch configurations wait on 127.0.0.1 for the job. The client finds their port taken, asks the agent that
serves the port to make the job dial, and connects each stream that the agent then opens to the editor.

    FREE --the port is taken--> TAKEN --the port is served--> ASKED --last stream ended, editor gone--> FREE
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from typing import NoReturn

from relay_client.agents.roster import Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.prefetch.layer import PrefetchCacheLayer
from relay_client.ui.text import printable
from relay_core.agent_api.metadata import StreamMetadata
from relay_core.agent_api.requests import Failure, Listen
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.session.driver import SessionDriver
from relay_core.net.session.stream import SessionStream
from relay_core.net.streams.bridge import Traffic, carry_bytes
from relay_core.net.streams.endpoint import connect_local
from relay_core.net.tasks import TaskSet, first_completed
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.outcomes import ResetCode

__all__ = ["Reverse", "is_taken"]

LOCAL_HOST = "127.0.0.1"
LOOK_INTERVAL = 1.0
"""Seconds between looks whether the editor listens (again)."""
REQUEST_INTERVAL = 2.0
"""Seconds between requests to the agent."""
REFUSED_INTERVAL = 15.0
"""Seconds after one that the job could not fulfil: what it lacks seldom comes by itself."""
DIAL_TIMEOUT = 5.0
MAX_REFUSAL = 16 * 1024
"""Bytes of what the agent says instead of making the job dial."""

logger = logging.getLogger(__name__)


class Reverse:
    """Connects a job to an editor that listens.

    Args:
        tunnels: Lead to the agents.
        port: The port that the editor listens on, and the logical port of the job.
    """

    def __init__(self, tunnels: Tunnels, port: int) -> None:
        self._tunnels = tunnels
        self._port = port
        self._streams = TaskSet()
        self._over = asyncio.Event()
        """Set when the editor has gone, or its last connection has ended."""
        self._told = ""

    def __repr__(self) -> str:
        return f"<Reverse port={self._port} streams={len(self._streams)}>"

    async def run(self) -> NoReturn:
        """Do so each time the editor listens, until cancelled.

        Raises:
            RelayDebugError: waiting for an agent cannot help.
        """
        async with self._streams:
            with self._tunnels.accepting(self._port, self._accept):
                while True:
                    while not is_taken(self._port):  # noqa: ASYNC110 - the system gives no event
                        await asyncio.sleep(LOOK_INTERVAL)
                    refused = await self._serve()
                    await asyncio.sleep(REFUSED_INTERVAL if refused else REQUEST_INTERVAL)

    async def _serve(self) -> bool:
        """Let the job dial for as long as the editor wants it; True if it cannot."""
        wanted = Destination(self._port)
        agent_id = await self._tunnels.seeker.until(
            lambda: self._tunnels.server_of(wanted),
            lambda error: self._tell(f"waiting: {self._tunnels.why_not(wanted, error)}"),
        )
        self._over.clear()
        try:
            request = self._tunnels.open_request(agent_id, Listen(self._port))
            refused = await first_completed(self._until_refused(request), self._over.wait())
            await request.close()
        except ConnectionLost as lost:
            self._tell(lost.reason or lost.sentence)
            return False
        return bool(refused) and not self._over.is_set()

    async def _until_refused(self, request: SessionStream) -> bool:
        """Wait until the agent ends the request, and say why it did; True if the job cannot dial."""
        said, refused = b"", False
        try:
            while (data := await request.read()) and len(said) < MAX_REFUSAL:
                said += data
            failure = Failure.parse(json.loads(said or b"{}"), printable)
            why = failure.error if failure else ""
            refused = failure is not None
        except ConnectionLost as lost:
            why = lost.reason or lost.sentence
        except ValueError:
            why = "the agent's answer makes no sense"
        if why:
            self._tell(f"the job does not dial: {why}")
        return refused

    def _accept(self, driver: SessionDriver, stream: SessionStream, event: StreamOpened) -> None:
        ask_ahead = StreamMetadata.parse(event.metadata).prefetch
        connecting = self._connect(driver, stream, ask_ahead=ask_ahead)
        self._streams.spawn(connecting, name=f"port {self._port} dialled by the job")

    async def _connect(self, driver: SessionDriver, stream: SessionStream, *, ask_ahead: bool) -> None:
        """Connect one stream of the job to the editor."""
        try:
            async with timeout(DIAL_TIMEOUT):
                local = await connect_local(LOCAL_HOST, self._port)
        except (OSError, *TIMEOUT_ERRORS):
            driver.refuse(stream, ResetCode.UNREACHABLE, f"no editor listens on port {self._port} any more")
            self._over.set()
            return
        driver.accept(stream)
        self._told = ""
        logger.info("port %d: the job has dialled the editor", self._port)
        traffic = Traffic()
        try:
            await carry_bytes(local, stream, [PrefetchCacheLayer()] if ask_ahead else [], traffic=traffic)
            logger.info("port %d: closed (%d bytes sent, %d received)", self._port, traffic.sent, traffic.received)
        except RelayDebugError as error:
            logger.warning("port %d: lost: %s", self._port, error.sentence)
        finally:
            if len(self._streams) == 1:  # this one
                self._over.set()

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            logger.warning("port %d: %s", self._port, text)


def is_taken(port: int) -> bool:
    """Whether a program listens on a local port; it is not disturbed."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as those have it who may want the port meanwhile
        try:
            probe.bind((LOCAL_HOST, port))
        except OSError:
            return True
    return False

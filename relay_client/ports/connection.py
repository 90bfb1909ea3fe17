"""One connection to a local port, from its acceptance to its end.

    WAITING for an agent --opened--> ASKING --first byte back--> CARRIED --> closed
       ^       |                       |
       |   the local side left         +--> refused for good: held by somebody else, nothing answers there
       +---- the target has gone ------+

Until the first byte comes back, what the local side has sent is kept, so that it can be sent again to a target that
has only just gone, as jobs and their processes do when they are restarted.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from typing import Any

from relay_client.agents.search import RETRY_DELAYS
from relay_client.agents.tunnels import Tunnels
from relay_client.ports.local_port import LocalPort
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.session.driver import StreamBroken
from relay_core.net.streams.pump import READ_SIZE, Traffic, close_writer, pump, set_nodelay
from relay_core.net.streams.stream import DirectStream
from relay_core.net.tasks import TaskSet, cancel_and_wait, first_completed
from relay_core.tunnel.outcomes import ResetCode

__all__ = ["carry"]

MAX_EARLY_BYTES = 256 * 1024
"""Bytes kept of what a local program sends before anything comes back."""
GONE = frozenset({ResetCode.GONE, ResetCode.UNKNOWN_TARGET, ResetCode.NOT_ALLOWED, ResetCode.LIMIT})
"""Refusals that pass by themselves. Only ports that the agent has announced are asked for: one that it does not serve
(any more) has just gone."""

logger = logging.getLogger(__name__)


async def carry(
    tunnels: Tunnels, local: LocalPort, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Connect a local connection to what its port stands for, and carry it to its end.

    Args:
        tunnels: Lead to the agents.
        local: The port it came in on.
        name: For messages.
        reader: The connection, incoming.
        writer: The connection, outgoing; closed at the end.
    """
    connection = _LocalConnection(tunnels, local, name, reader, writer)
    traffic = connection.traffic
    try:
        set_nodelay(writer)
        logger.info("%s: accepted", name)
        stream = await connection.opened()
        if stream is None:
            logger.info("%s: left before an agent was there", name)
            return
        logger.info("%s: connected to the agent", name)
        await pump(reader, writer, stream, traffic)
        logger.info("%s: closed (%d bytes sent, %d received)", name, traffic.sent, traffic.received)
    except StreamBroken as broken:
        _show_broken(name, local, broken)
    except ConnectionLost as lost:
        logger.warning("%s: lost: %s", name, lost.reason or lost.sentence)
    except RelayDebugError as error:
        logger.error("%s: %s", name, error)
    finally:
        await close_writer(writer)


def _show_broken(name: str, local: LocalPort, broken: StreamBroken) -> None:
    if broken.reset is ResetCode.HELD:
        logger.error(
            "%s is %s. hint: it is free as soon as they disconnect their debugger; until then use another rank's port",
            local,
            broken.reason,
        )
    else:
        logger.warning("%s: lost: %s", name, broken.reason)


class _LocalConnection:
    """A connection that may have to wait."""

    def __init__(
        self,
        tunnels: Tunnels,
        local: LocalPort,
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.traffic = Traffic()
        self._tunnels = tunnels
        self._local = local
        self._name = name
        self._reader = reader
        self._writer = writer
        self._early = bytearray()
        self._told = ""

    async def opened(self) -> DirectStream | None:
        """Return a stream that has answered, however long it takes; None once the local side has left.

        Raises:
            RelayDebugError: waiting cannot help.
        """
        for delay in itertools.chain(RETRY_DELAYS, itertools.repeat(RETRY_DELAYS[-1])):
            changed = self._tunnels.seeker.changed
            try:
                stream = await self._tunnels.open_for(self._writer, self._local.destination)
                return stream if await self._answered(stream) else None
            except StreamBroken as broken:
                if broken.reset not in GONE:
                    raise
                self._show_waiting(broken.reason)
            except RelayDebugError as error:
                if not error.retryable or self.traffic.sent:
                    raise
                self._show_waiting(str(error))
            self.traffic.sent = 0
            if await self._left(changed, within=delay):
                break
        return None

    def _show_waiting(self, why: str) -> None:
        if why != self._told:
            logger.warning("%s: waiting: %s", self._name, why)
            self._told = why

    async def _answered(self, stream: DirectStream) -> bool:
        """Carry what the local side says until the other side answers; False if the local side left without a word.

        Raises:
            ConnectionLost: the stream broke, or was refused.
        """
        try:
            await self._send(stream, bytes(self._early))
            async with TaskSet() as tasks:
                answer = tasks.spawn(_outcome(stream.read()), name="answer")
                if not await self._said(stream, tasks, answer):
                    stream.abort("left before it said anything")
                    return False
                if answer.done():
                    self._receive(answer.result())
        except BaseException:
            stream.abort()
            raise
        return True

    async def _said(self, stream: DirectStream, tasks: TaskSet, answer: asyncio.Task[bytes | Exception]) -> bool:
        """Pass on what the local side says until there is an answer, or so much that no more can be kept.

        Returns:
            False if the local side left without a word.
        """
        while not answer.done() and len(self._early) < MAX_EARLY_BYTES:
            saying = tasks.spawn(_outcome(self._reader.read(READ_SIZE)), name="what the local side says")
            await first_completed(answer, saying)
            if not saying.done():
                await cancel_and_wait(saying)  # nothing is lost: what has not been read stays with the reader
                return True
            data = saying.result()
            if isinstance(data, Exception) or not (data or self._early):
                return False
            if not data:
                await stream.write_eof()
                await asyncio.wait({answer})
            self._early += data
            await self._send(stream, data)
        return True

    async def _send(self, stream: DirectStream, data: bytes) -> None:
        self.traffic.sent += len(data)
        await stream.write(data)

    def _receive(self, answer: bytes | Exception) -> None:
        if isinstance(answer, Exception):
            raise answer
        self.traffic.received += len(answer)
        self._writer.write(answer)

    async def _left(self, changed: asyncio.Event, *, within: float) -> bool:
        """Whether the local side ends its connection before something changes, or `within` seconds.

        What it sends meanwhile is kept.
        """
        async with TaskSet() as tasks:
            change = tasks.spawn(changed.wait(), name="wait for a change")
            deadline = asyncio.get_running_loop().time() + within
            while not change.done() and (left := deadline - asyncio.get_running_loop().time()) > 0:
                if len(self._early) >= MAX_EARLY_BYTES:
                    await asyncio.wait({change}, timeout=left)
                    continue
                said = tasks.spawn(_outcome(self._reader.read(READ_SIZE)), name="what the local side says")
                await first_completed(change, said, timeout=left)
                if said.done():
                    data = said.result()
                    if not data or isinstance(data, Exception):
                        return True
                    self._early += data
        return False


async def _outcome(reading: Coroutine[Any, Any, bytes]) -> bytes | Exception:
    """Return an error instead of raising it: nobody may be waiting for it any more."""
    try:
        return await reading
    except (ConnectionLost, OSError) as error:
        return error

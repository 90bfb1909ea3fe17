"""One connection to a local port, from accept to close.

    WAITING for an agent --stream opened--> CARRYING --both directions have ended--> closed
       ^       |                              |  |
       |   the local side disconnected        |  +--> refused for good: held by another user, or nothing is listening
       +-- the target has exited, unanswered -+

Until the target sends its first byte, the bytes of the local side are kept (`relay_core.layers.early_bytes`), so that
they can be sent again if the target has just exited, as when a job or one of its processes is restarted.
"""

from __future__ import annotations

import asyncio
import itertools
import logging

from relay_client.agents.search import RETRY_DELAYS
from relay_client.agents.tunnels import Tunnels
from relay_client.ports.local_port import LocalPort
from relay_client.ports.reverse_requests import ReverseRequestGuard
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.layers.early_bytes import EarlyBytes
from relay_core.net.session.stream import StreamBroken
from relay_core.net.streams.bridge import Bridge, Traffic
from relay_core.net.streams.endpoint import LocalEndpoint
from relay_core.net.tasks import first_completed
from relay_core.tunnel.outcomes import ResetCode

__all__ = ["carry"]

GONE = frozenset({ResetCode.GONE, ResetCode.UNKNOWN_TARGET, ResetCode.NOT_ALLOWED, ResetCode.LIMIT})
"""Refusals after which another attempt may succeed. Streams are opened only to ports that an agent has announced, so a
port that it does not serve has just been removed."""

logger = logging.getLogger(__name__)


async def carry(tunnels: Tunnels, local: LocalPort, name: str, endpoint: LocalEndpoint) -> None:
    """Connect a local connection to the destination of its port, and carry it until it ends.

    Args:
        tunnels: The tunnels to the agents.
        local: The local port that accepted the connection.
        name: Name of the connection for log lines.
        endpoint: The connection; closed at the end.
    """
    connection = _LocalConnection(tunnels, local, name, endpoint)
    traffic = connection.traffic
    try:
        logger.info("%s: accepted", name)
        if not await connection.carry():
            logger.info("%s: disconnected before an agent was available", name)
            return
        await endpoint.close()
        logger.info("%s: closed (%d bytes sent, %d received)", name, traffic.sent, traffic.received)
    except StreamBroken as broken:
        _log_broken(name, local, broken)
    except ConnectionLost as lost:
        logger.warning("%s: lost: %s", name, lost.reason or lost.sentence)
    except RelayDebugError as error:
        logger.error("%s: %s", name, error)
    finally:
        endpoint.abort()


def _log_broken(name: str, local: LocalPort, broken: StreamBroken) -> None:
    if broken.reset is ResetCode.HELD:
        logger.error(
            "%s is %s. hint: it is free once they disconnect their debugger; until then use another rank's port",
            local,
            broken.reason,
        )
    else:
        logger.warning("%s: lost: %s", name, broken.reason)


class _LocalConnection:
    """A connection that waits for its target if necessary."""

    def __init__(self, tunnels: Tunnels, local: LocalPort, name: str, endpoint: LocalEndpoint) -> None:
        self.traffic = Traffic()
        self._tunnels = tunnels
        self._local = local
        self._name = name
        self._endpoint = endpoint
        self._early = EarlyBytes(lambda: logger.info("%s: connected to the agent", name))
        self._last_logged = ""

    async def carry(self) -> bool:
        """Try until a target answers, and carry all bytes; False if the local side disconnected before that.

        Raises:
            RelayDebugError: waiting cannot help, or the stream broke after the target had answered.
        """
        for delay in itertools.chain(RETRY_DELAYS, itertools.repeat(RETRY_DELAYS[-1])):
            changed = self._tunnels.search.changed
            why = await self._attempt()
            if why is None:
                return self._early.is_finished
            if why != self._last_logged:
                logger.warning("%s: waiting: %s", self._name, why)
                self._last_logged = why
            if await self._has_ended(changed, within=delay):
                break
        return False

    async def _attempt(self) -> str | None:
        """Carry the connection through one stream; return the reason for another attempt, or None if it has ended.

        Raises:
            RelayDebugError: as `carry`.
        """
        try:
            stream, layers = await self._tunnels.open_for(self._local.destination)
        except RelayDebugError as error:
            if not error.retryable:
                raise
            return str(error)
        try:
            guards = [] if self._local.destination.is_forward else [self._guard()]
            await Bridge(self._endpoint, stream, [self._early, *guards, *layers], traffic=self.traffic).run()
            await stream.close()
        except RelayDebugError as error:
            stream.abort()
            return self._retry_reason(error)
        except BaseException:
            stream.abort()
            raise
        return None

    def _guard(self) -> ReverseRequestGuard:
        return ReverseRequestGuard(self._local.port, lambda text: logger.warning("%s: %s", self._name, text))

    def _retry_reason(self, error: RelayDebugError) -> str | None:
        """Return the reason for another attempt after an error, or None if the local side disconnected unanswered.

        Raises:
            RelayDebugError: the error, if another attempt cannot help.
        """
        if self._early.is_finished:
            raise error
        if isinstance(error, StreamBroken):
            if error.reset in GONE:
                return error.reason
        elif self._endpoint.is_gone or (self._endpoint.ended.is_set() and not self._early):
            return None
        elif error.retryable and not self._early:
            return str(error)
        raise error

    async def _has_ended(self, changed: asyncio.Event, *, within: float) -> bool:
        """Wait for a change, at most `within` seconds; True if the local side has ended its connection.

        Bytes that it sends meanwhile are kept.
        """
        await first_completed(changed.wait(), self._endpoint.ended.wait(), timeout=within)
        return self._endpoint.ended.is_set()

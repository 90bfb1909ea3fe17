"""The connections of local programs to the open ports, as data for display and as lines of the log."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator

from relay_client.ports.local_port import LocalPort
from relay_client.ranks.record import Connection
from relay_client.ranks.view import StopReport
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.foreign import printable
from relay_core.layers.stop_observer import ObservedStop, StopObserver
from relay_core.net.session.stream import StreamBroken
from relay_core.net.streams.bridge import Traffic
from relay_core.tunnel.outcomes import ResetCode

logger = logging.getLogger(__name__)

MAX_PATH = 1000
"""Maximum number of characters in a displayed file name."""


class ConnectionRecord:
    """The record of one connection.

    Args:
        number: Its number in the log.
        port: The local port.
        on_change: Called after each change.
        remote_port: The logical port of the rank, if the connection leads from the port of all ranks to one rank.
    """

    def __init__(self, number: int, port: int, on_change: Callable[[], None], remote_port: int | None = None) -> None:
        self.number = number
        self.port = port
        self._remote_port = remote_port
        self.traffic = Traffic()
        self.why_cancelled = "this client was stopped"
        """The reason shown to the editor if the task of the connection is cancelled."""
        self.reason = ""
        """Why the connection is waiting or has closed."""
        self._state = Connection.WAITING
        self._since = time.time()
        self._stop: ObservedStop | None = None
        self._stopped_at = 0.0
        self._is_interrupted = False
        self._has_resumed = False
        """Whether the editor has resumed the process since the tunnel was interrupted."""
        self._on_change = on_change

    @property
    def name(self) -> str:
        """The name of the connection in the log."""
        to = f" to port {self._remote_port}" if self._remote_port is not None else ""
        return f"port {self.port} connection {self.number}{to}"

    def waiting(self, reason: str) -> None:
        """Record that no target is available."""
        self._set(Connection.WAITING, reason)

    def connected(self) -> None:
        """Record that the target has answered."""
        self._set(Connection.CONNECTED)

    def closed(self, reason: str = "") -> None:
        """Record the end of the connection; only the first reason is kept."""
        if self._state != Connection.CLOSED:
            self._stop = None
            self._set(Connection.CLOSED, reason)

    def interrupted(self, *, is_interrupted: bool) -> None:
        """Record that the tunnel has lost its connection, or that the connection has been restored.

        A process that the editor resumes in the meantime stays where it is until it receives the request.
        """
        self._is_interrupted = is_interrupted
        if self._has_resumed and not is_interrupted:
            self._observed(None)

    def observer(self) -> StopObserver:
        """Return a layer that records where the debugged process is stopped."""
        return StopObserver(self._observed)

    def describe(self) -> Connection:
        """Return the connection as data for other programs."""
        sent, received = self.traffic.sent, self.traffic.received
        reason, stop = self.reason or None, self._describe_stop()
        return Connection(
            self.number, self.port, self._state, self._since, reason, sent, received, stop, self._remote_port
        )

    def _describe_stop(self) -> StopReport | None:
        if self._stop is None:
            return None
        reason, place = printable(self._stop.reason), self._stop.place
        uncaught = printable(self._stop.uncaught) or None
        if place is None:
            return StopReport(reason, self._stopped_at, uncaught=uncaught)
        file, function = printable(place.file, MAX_PATH), printable(place.function)
        return StopReport(reason, self._stopped_at, file or None, place.line, function or None, uncaught)

    def _set(self, state: str, reason: str = "") -> None:
        if state != self._state:
            self._since = time.time()
        self._state, self.reason = state, reason
        self._on_change()

    def _observed(self, found: ObservedStop | None) -> None:
        self._has_resumed = found is None and self._is_interrupted
        if self._has_resumed:
            return
        if found is not self._stop:
            self._stop, self._stopped_at = found, time.time()
        self._on_change()


class Connections:
    """The open connections.

    Args:
        on_change: Called after each change to a connection.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._records: dict[int, ConnectionRecord] = {}
        self._numbers = itertools.count(1)
        self._uses = 0
        self._idle_since = time.monotonic()

    def __iter__(self) -> Iterator[ConnectionRecord]:
        return iter(list(self._records.values()))

    def add(self, port: int, remote_port: int | None = None) -> ConnectionRecord:
        """Return a new record, for the caller to `remove` later. `remote_port` is as in `ConnectionRecord`."""
        self._uses += 1
        record = ConnectionRecord(next(self._numbers), port, self._on_change, remote_port)
        self._records[record.number] = record
        self._on_change()
        return record

    def remove(self, record: ConnectionRecord) -> None:
        """Remove a record, and record the end of its connection if that has not been done yet."""
        record.closed()
        del self._records[record.number]
        self._end_use()
        self._on_change()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Mark the ports as used during a `with` block, for an editor that is not connected to any rank yet."""
        self._uses += 1
        try:
            yield
        finally:
            self._end_use()

    async def until_idle(self, seconds: float) -> None:
        """Wait until no program has been connected for `seconds`."""
        while True:
            remaining = seconds if self._uses else self._idle_since + seconds - time.monotonic()
            if remaining <= 0:
                return
            await asyncio.sleep(remaining)

    def _end_use(self) -> None:
        self._uses -= 1
        self._idle_since = time.monotonic()


class PortLog:
    """Logs the connections to one port: one line for each state of a debugger's connection.

    A browser opens many connections to a forwarded port. Each of them is logged in one line at level DEBUG, and a
    problem that they have in common is logged only once until a connection succeeds again.

    Args:
        local: The port.
    """

    def __init__(self, local: LocalPort) -> None:
        self._local = local
        self._is_forward = local.destination.is_forward
        self._last_problem = ""
        """The last logged problem with a forwarded port; "" once a connection to the port has succeeded."""

    def connected(self, name: str) -> None:
        """Log that the target has answered."""
        self._last_problem = ""
        self.happened(name, "connected to the agent")

    def happened(self, name: str, what: str) -> None:
        """Log what has happened to a connection of an editor."""
        if not self._is_forward:
            logger.info("%s: %s", name, what)

    def closed(self, record: ConnectionRecord) -> None:
        """Log the end of a connection and its byte counts."""
        level, traffic = logging.DEBUG if self._is_forward else logging.INFO, record.traffic
        logger.log(level, "%s: closed (%d bytes sent, %d received)", record.name, traffic.sent, traffic.received)

    def waiting(self, name: str, why: RelayDebugError) -> None:
        """Log why a connection is waiting."""
        self._problem(logging.WARNING, name, f"waiting: {why.reason if isinstance(why, StreamBroken) else why}")

    def failed(self, name: str, error: RelayDebugError) -> None:
        """Log the error that has ended a connection."""
        if isinstance(error, StreamBroken) and error.reset is ResetCode.HELD:
            logger.error(
                "%s is %s. hint: wait until that user disconnects, or debug another rank", self._local, error.reason
            )
        elif isinstance(error, ConnectionLost):
            self._problem(logging.WARNING, name, f"lost: {error.reason or error.sentence}")
        else:
            self._problem(logging.ERROR, name, str(error))

    def _problem(self, level: int, name: str, text: str) -> None:
        if not self._is_forward:
            logger.log(level, "%s: %s", name, text)
        elif text != self._last_problem:
            self._last_problem = text
            logger.log(level, "%s: %s", self._local, text)
        else:
            logger.debug("%s: %s", name, text)

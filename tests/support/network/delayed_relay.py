"""A relay with the latencies of a cloud service; order and throughput do not change.

`python -m tests.support.network.delayed_relay azure serve --config FILE` is relay-server with one of `PROFILES`.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from relay_core.program.console import run_program
from relay_server import cli, service
from relay_server.config.model import RelayConfig
from relay_server.connection.tcp import Connection
from relay_server.protocol.refusals import Refusal
from relay_server.protocol.requests import HybridRequest
from relay_server.relaying.rendezvous import PendingSender
from relay_server.server import RelayServer


@dataclass(frozen=True)
class DelayProfile:
    """Latencies in seconds."""

    lane: float = 0.0
    """One-way latency between the relay and any client."""
    handshake_round_trips: int = 2
    """Round trips of the TCP and TLS 1.3 handshakes. The relay cannot delay these, so it delays its first response."""
    authorization: float = 0.0
    matchmaking: float = 0.0
    slow: float = 0.0
    """Share of the senders' WebSockets that are held before a listener is offered them."""
    slow_range: tuple[float, float] = (3.0, 7.0)
    """The shortest and the longest time for which these are held."""
    hanging: float = 0.0
    """Share of the senders' WebSockets that no listener is ever offered."""
    seed: int = 0
    """Determines which are held, by the order of their arrival."""

    def holds(self) -> Iterator[float]:
        """Yield for how long each WebSocket of a sender is held; infinity if no listener is ever offered it.

        Each is drawn independently, even a second one of the same sender; the same seed repeats the sequence.
        """
        draws = random.Random(self.seed)
        while True:
            draw, hold = draws.random(), draws.uniform(*self.slow_range)
            yield math.inf if draw < self.hanging else hold if draw < self.hanging + self.slow else 0.0


AZURE = DelayProfile(lane=0.030, authorization=0.010, matchmaking=0.050)
"""Latencies that were measured on the live service."""
AZURE_TAIL = replace(AZURE, slow=0.05, hanging=0.01)
"""The same with the live service's slow and unanswered connects."""
PROFILES = {"azure": AZURE, "azure-tail": AZURE_TAIL}


class DelayedConnection(Connection):
    """A connection with a one-way latency in each direction; `abort` is not delayed."""

    lane: float
    outgoing: deque[Callable[[], None]]
    incoming: deque[Callable[[], None]]

    @classmethod
    def slow_down(cls, connection: Connection, lane: float) -> None:
        """Delay what a new connection sends and receives from now on by `lane` seconds."""
        connection.__class__ = cls
        assert isinstance(connection, cls)
        connection.lane, connection.outgoing, connection.incoming = lane, deque(), deque()

    def write(self, data: bytes) -> None:
        """Send bytes after the delay."""
        self._later(self.outgoing, functools.partial(super().write, data))

    def close(self) -> None:
        """Close the connection after what was written before."""
        self._later(self.outgoing, super().close)

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on received bytes after the delay."""
        self._later(self.incoming, functools.partial(self._received, bytes(self._buffer[:nbytes])))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end after the delay."""
        self._later(self.incoming, functools.partial(super().connection_lost, exc))

    def _received(self, data: bytes) -> None:
        if self.handler is not None and self._close_timer is None:
            self.handler.received(memoryview(data))

    def _later(self, lane: deque[Callable[[], None]], action: Callable[[], None]) -> None:
        # Timers that are due at the same moment run in any order, so a timer runs the oldest action, not its own.
        lane.append(action)
        self._loop.call_later(self.lane, self._next, lane)

    @staticmethod
    def _next(lane: deque[Callable[[], None]]) -> None:
        lane.popleft()()


class DelayedRelay(RelayServer):
    """A relay with the latencies of a profile."""

    def __init__(self, config: RelayConfig, delays: DelayProfile) -> None:
        super().__init__(config)
        self._delays = delays
        self._holds = delays.holds()
        gateway, matchmaker = self._gateway, self._gateway.matchmaker
        # The request itself arrives after one more lane.
        first_response = delays.lane * (2 * delays.handshake_round_trips + 1)
        gateway.serve = _after(lambda *_: asyncio.sleep(first_response), gateway.serve)
        gateway._dispatch = _after(self._authorize, gateway._dispatch)
        matchmaker.offer = _after(self._choose_listener, matchmaker.offer)

    def _connected(self, connection: Connection) -> None:
        if self._delays.lane:
            DelayedConnection.slow_down(connection, self._delays.lane)
        super()._connected(connection)

    async def _authorize(self, request: HybridRequest, _handshake: object) -> None:
        """Wait as long as the service takes to check a token."""
        if request.action in {"listen", "connect"}:
            await asyncio.sleep(self._delays.authorization)

    async def _choose_listener(
        self, _candidates: object, _message: str, pending: PendingSender, limit: float, timed_out: Refusal
    ) -> None:
        """Wait as long as the service takes to choose a listener, and as long as it holds the sender before that."""
        await asyncio.sleep(self._delays.matchmaking)
        if hold := next(self._holds):
            await asyncio.wait({pending.outcome}, timeout=min(hold, limit))
            if hold > limit or pending.outcome.done():
                await self._gateway.matchmaker.outcome(pending, 0.0, timed_out)


def delayed(profile: DelayProfile) -> Callable[[RelayConfig], DelayedRelay]:
    """Return a function that makes a relay with a profile."""
    return functools.partial(DelayedRelay, delays=profile)


def _after(wait: Callable[..., Awaitable[None]], method: Callable[..., Awaitable[Any]]) -> Any:
    """Return a method that first waits."""

    async def delayed(*arguments: Any) -> Any:
        await wait(*arguments)
        return await method(*arguments)

    return delayed


def main(argv: list[str]) -> int:
    """Run relay-server with the profile that the first argument names."""
    profile, *arguments = argv
    service.RelayServer = delayed(PROFILES[profile])
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(run_program("relay-server", main))

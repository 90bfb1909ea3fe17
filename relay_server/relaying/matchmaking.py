"""Hybrid connections with their listeners, and which of them are offered a sender, with what outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER, DISALLOWED_LISTENERS_HEADER
from relay_server.config.model import HybridConnection, RelayConfig
from relay_server.connection.request_reader import Handshake
from relay_server.metrics import EntityCounters
from relay_server.protocol.refusals import Refusal, no_listeners, no_matching_listeners, overloaded, too_many_listeners
from relay_server.protocol.requests import RelayRequest
from relay_server.relaying.control import ControlChannel
from relay_server.relaying.rendezvous import HttpRendezvous, Outcome, PendingSender, Rendezvous

logger = logging.getLogger(__name__)


# Registry of hybrid connections and their listeners; independent of sockets.


class Registry:
    """Finds hybrid connections by path, and keeps track of their listeners.

    Args:
        connections: The hybrid connections of the namespace.
        max_listeners: Maximum number of listeners per hybrid connection.
    """

    def __init__(self, connections: Iterable[HybridConnection], *, max_listeners: int) -> None:
        self._max_listeners = max_listeners
        self._listeners: dict[str, list[ControlChannel]] = {}
        """Listeners by lower-case path, including those of hybrid connections that have been removed."""
        self.replace_connections(connections)

    def replace_connections(self, connections: Iterable[HybridConnection]) -> None:
        """Replace the hybrid connections; listeners stay with the hybrid connection of the same path."""
        self._connections = {tuple(item.path.lower().split("/")): item for item in connections}
        self._depth = max(map(len, self._connections), default=0)
        for item in self._connections.values():
            self._listeners.setdefault(item.path.lower(), [])

    @property
    def connections(self) -> Iterable[HybridConnection]:
        """The configured hybrid connections."""
        return self._connections.values()

    @property
    def listeners(self) -> list[ControlChannel]:
        """All listeners of all hybrid connections."""
        return [listener for listeners in self._listeners.values() for listener in listeners]

    def find(self, segments: Sequence[str]) -> HybridConnection | None:
        """Return the hybrid connection whose path is the longest prefix of these segments (case-insensitive)."""
        asked = tuple(segment.lower() for segment in segments[: self._depth])
        for length in range(len(asked), 0, -1):
            if found := self._connections.get(asked[:length]):
                return found
        return None

    def check_room(self, connection: HybridConnection, listener_id: str) -> ControlChannel | None:
        """Check whether a listener can be added.

        Returns:
            None if there is room; at the limit, the oldest channel with the same id, which must be closed first.

        Raises:
            Refusal: The limit is reached, and no channel has this id.
        """
        present = self._listeners[connection.path.lower()]
        if len(present) < self._max_listeners:
            return None
        # An agent reconnects because its old channel is dead, which this relay may detect a minute later. Below the
        # limit, the old channel is kept; otherwise, any holder of a Listen key could cut off an agent whose id it
        # knows.
        for listener in present:
            if listener.id.lower() == listener_id.lower():
                return listener
        raise too_many_listeners(self._max_listeners)

    def add(self, listener: ControlChannel) -> None:
        """Add a listener, for which `check_room` has found room."""
        self._listeners[listener.hybrid_connection.path.lower()].append(listener)

    def remove(self, listener: ControlChannel) -> None:
        """Remove a listener that can no longer receive offers."""
        self._listeners[listener.hybrid_connection.path.lower()].remove(listener)

    def listeners_of(self, connection: HybridConnection) -> list[ControlChannel]:
        """Return the listeners of a hybrid connection, the oldest channel first."""
        return list(self._listeners[connection.path.lower()])


# Selection of the listeners that are offered a sender; independent of sockets.
#
# Azure picks one of the listeners at random, and so does this relay, although taking turns would spread senders better:
# clients must not come to depend on an order that the service does not have.


def select_listeners(
    present: Sequence[ControlChannel],
    *,
    shuffle: Callable[[list[ControlChannel]], None],
    allowed: Collection[str] = (),
    disallowed: Collection[str] = (),
) -> list[ControlChannel]:
    """Return the listeners to try, in random order; of those with the same id, the newest comes first.

    Args:
        present: The listeners of the requested hybrid connection, the oldest first.
        shuffle: Puts a list into random order.
        allowed: Lower-case ids; if not empty, only these listeners are returned.
        disallowed: Lower-case ids of listeners that are not returned.

    Raises:
        Refusal: No listener is present, or none is allowed.
    """
    if not present:
        raise no_listeners()
    wanted = [
        listener
        for listener in present
        if listener.id.lower() not in disallowed and (not allowed or listener.id.lower() in allowed)
    ]
    if not wanted:
        raise no_matching_listeners()
    # An agent that lost its network reconnects with the same id while its old channel still appears to be alive.
    newest = {listener.id.lower(): listener for listener in wanted}
    older = [listener for listener in reversed(wanted) if newest[listener.id.lower()] is not listener]
    first = list(newest.values())
    shuffle(first)
    return [*first, *older]


# Matching of senders and listeners: which listeners are offered a sender, and what the outcome is.
#
# Why a sender without a listener is refused at once and not kept until one appears: Azure does the same, and the client
# must distinguish "no agent" from "an agent that does not answer" to end a search. Clients that want to wait try again.
#
# Why a listener that is connected but does not answer keeps its offer until the time limit: the relay cannot
# distinguish it from a slow one. Only a lost control channel is a reason to offer the sender to the next listener,
# within the same limit, so that several dead listeners do not add up.
#
# Invariants: the addresses that are valid are those of the senders inside a `pending` block, so no address outlives its
# sender, however the sender's task ends. Their number is limited for each hybrid connection and not only for the relay:
# one whose listeners are silent must not take the places of all others.

GONE_TIMEOUT = 2.0
"""Seconds for which a listener that has disconnected may still accept a sender, if the hybrid connection has no other
listener. It may have begun to accept that sender before it disconnected."""


class Matchmaker:
    """Listeners, and the senders that wait for one of them.

    Args:
        config: The relay's configuration.
        counters: Counts the senders that are waiting for a listener.
    """

    def __init__(self, config: RelayConfig, counters: EntityCounters) -> None:
        self.registry = Registry(config.hybrid_connections, max_listeners=config.limits.max_listeners)
        self.rendezvous = Rendezvous(new_secret=lambda: secrets.token_hex(16))
        self._config = config
        self._counters = counters
        self._waiting: Counter[str] = Counter()
        """Number of senders that are waiting for a listener, by hybrid connection."""

    def candidates(self, connection: HybridConnection, request: RelayRequest) -> list[ControlChannel]:
        """Return the listeners to try, in order.

        Raises:
            Refusal: The hybrid connection has no listeners, or none that the sender allows.
        """
        # Azure Relay honours these headers, but does not document them; without them, clients must still find agents.
        honoured = self._config.honour_listener_selection
        return select_listeners(
            self.registry.listeners_of(connection),
            shuffle=secrets.SystemRandom().shuffle,
            allowed=request.listener_ids(ALLOWED_LISTENERS_HEADER) if honoured else (),
            disallowed=request.listener_ids(DISALLOWED_LISTENERS_HEADER) if honoured else (),
        )

    @contextlib.contextmanager
    def pending(
        self, hybrid_connection: HybridConnection, request: RelayRequest, handshake: Handshake
    ) -> Iterator[PendingSender]:
        """Provide an address at which a listener can accept a sender, for the duration of the block.

        Raises:
            Refusal: Too many senders are waiting.
        """
        if self._waiting[hybrid_connection.path] >= self._config.limits.max_waiting_senders:
            raise overloaded()
        pending = self.rendezvous.open(request, handshake)
        counters = self._counters.of(hybrid_connection.path)
        counters.pending_senders += 1
        self._waiting[hybrid_connection.path] += 1
        try:
            yield pending
        finally:
            # Even if the sender has disconnected, which cancels this task: the address must become invalid.
            self.rendezvous.forget(pending)
            self._waiting[hybrid_connection.path] -= 1
            counters.pending_senders -= 1

    async def offer(
        self,
        candidates: Iterable[ControlChannel],
        message: str,
        pending: PendingSender,
        limit: float,
        timed_out: Refusal,
    ) -> Outcome:
        """Offer a sender to the first listener that can receive the message, and return what a listener did.

        If a listener disconnects before it has accepted or rejected, the next one is offered the sender, or the sender
        is refused if there is none. An address can be used only once, so the sender gets only one listener even if the
        first one accepts after all.

        Args:
            candidates: The listeners to try, in order.
            message: The `accept` message.
            pending: The sender.
            limit: Seconds for all of them together.
            timed_out: The error to raise after that time.

        Raises:
            Refusal: No listener is connected, none answered in time, or the relay is shutting down.
        """
        loop = asyncio.get_running_loop()
        deadline, control = loop.time() + limit, None
        # One listener at a time, as in Azure Relay: two that are offered the same sender would both connect, and one of
        # them would be refused.
        for control in (each for each in candidates if each.offer(message)):
            waited: set[asyncio.Future[Any]] = {pending.outcome, control.gone}
            await asyncio.wait(waited, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
            # A listener has answered, or no time is left; a listener that is still connected keeps its offer.
            if pending.outcome.done() or not control.gone.done():
                return await self.outcome(pending, deadline - loop.time(), timed_out)
        if control is None:
            raise no_listeners()
        return await self.outcome(pending, min(deadline - loop.time(), GONE_TIMEOUT), no_listeners())

    async def outcome(self, pending: PendingSender, limit: float, timed_out: Refusal) -> Outcome:
        """Return what a listener did.

        Args:
            pending: The sender.
            limit: Seconds.
            timed_out: The error to raise after that time.

        Raises:
            Refusal: No listener answered in time, or the relay is shutting down.
        """
        try:
            await asyncio.wait({pending.outcome}, timeout=limit)
        except asyncio.CancelledError:
            # The sender disconnected just as a listener accepted it, and nothing else closes the listener's connection.
            if pending.outcome.done() and isinstance(listener := pending.outcome.result(), HttpRendezvous):
                listener.abort()
            raise
        if not pending.outcome.done():
            logger.info("no listener answered sender %s in time", pending.id)
            raise timed_out
        outcome = pending.outcome.result()
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

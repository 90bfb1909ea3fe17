"""Discovery of agents on all hybrid connections of a family, several at a time.

Each agent listens on one of them, and may listen on a different one after an interruption. This module records on which
hybrid connection each agent was last seen, and dials the agent there. If the agent has moved, the next search reaches
it and recognizes its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from relay_client.agents.discovery import Begun, Discovery, SearchEffort, conclude
from relay_core.errors import RelayDebugError
from relay_core.hyco.address import Endpoint
from relay_core.net.tasks import TaskSet
from relay_core.net.websocket.connection import WebSocket

__all__ = ["FamilyDiscovery"]

MAX_CONNECTS = 64
"""Maximum number of simultaneous connection attempts: enough to find 200 agents within seconds, and few enough that
each attempt is completed within its time limit even on a slow computer."""


class FamilyDiscovery:
    """Finds agents on a hybrid connection, or on all hybrid connections of a family.

    Args:
        endpoint: The hybrid connection or family.
        connect: Makes one connection through a hybrid connection, with the given headers.
        begin: Begins a session on a connection, unless this client already has one with the agent at the other end.
        known: Returns the ids of the agents to which this client has tunnels.
        client_id: The id of this client.
        on_missed: Called when a search for new agents is worthwhile, as in `Discovery`.
        on_moved: Called with the id of a known agent that has been seen on a different hybrid connection.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        connect: Callable[[Endpoint, Mapping[str, str]], Awaitable[WebSocket]],
        begin: Callable[[WebSocket], Awaitable[Begun]],
        known: Callable[[], Collection[str]],
        *,
        client_id: str,
        on_missed: Callable[[], None] = lambda: None,
        on_moved: Callable[[str], None] = lambda _agent: None,
    ) -> None:
        self._name = endpoint.name
        self._connect = connect
        self._known = known
        self._on_moved = on_moved
        self._slots = asyncio.Semaphore(MAX_CONNECTS)
        self._places: dict[str, int] = {}
        """By agent: the index of the hybrid connection on which it was last seen."""
        self._last_unusable = ""
        self._parts = [
            Discovery(
                partial(self._connect_to, sibling),
                begin,
                partial(self._known_at, index),
                client_id=client_id,
                path=endpoint.name,
                on_missed=on_missed,
                on_seen=partial(self._seen, index),
                is_repeated=self._is_repeated,
            )
            for index, sibling in enumerate(endpoint.siblings)
        ]

    def __repr__(self) -> str:
        return f"<FamilyDiscovery {self._name} of {len(self._parts)} known={len(self._known())}>"

    async def search(self, wanted: Callable[[], SearchEffort | None]) -> RelayDebugError | None:
        """Search on all hybrid connections at once until `wanted` returns None or no agents are left.

        Returns:
            The same as `Discovery.search`. Deleted hybrid connections are an error only if all of them are deleted.
        """
        known = self._known()
        self._places = {agent: index for agent, index in self._places.items() if agent in known}
        async with TaskSet() as tasks:
            running = [tasks.spawn(part.probe_all(wanted), name=f"search '{self._name}'") for part in self._parts]
            ended = [await task for task in running]
        return conclude(
            ended,
            self._name,
            is_met=wanted() is None or any(part.was_met for part in ended),
            has_known=bool(self._known()),
            has_found=any(part.has_found for part in self._parts),
        )

    async def dial_agent(self, agent: str) -> WebSocket:
        """Connect to a known agent where it was last seen, to resume its session.

        Raises:
            NoListener, RelayDebugError: for the same reasons as in `Discovery.dial_agent`.
        """
        return await self._parts[self._places.get(agent, 0)].dial_agent(agent)

    def mark_alive(self, agent: str) -> None:
        """Record that an agent is alive, so that the next attempts to resume use all probes again."""
        for part in self._parts:
            part.mark_alive(agent)

    async def _connect_to(self, sibling: Endpoint, headers: Mapping[str, str]) -> WebSocket:
        if len(self._parts) == 1:
            return await self._connect(sibling, headers)
        async with self._slots:
            return await self._connect(sibling, headers)

    def _known_at(self, index: int) -> Collection[str]:
        """Return the known agents that were last seen on a hybrid connection."""
        if len(self._parts) == 1:
            return self._known()
        return [agent for agent in self._known() if self._places.get(agent) == index]

    def _seen(self, index: int, agent: str) -> None:
        before = self._places.get(agent, index)
        self._places[agent] = index
        if before != index and agent in self._known():
            self._on_moved(agent)

    def _is_repeated(self, text: str) -> bool:
        """Return whether an unusable agent's error equals the last one, on any hybrid connection."""
        is_repeated, self._last_unusable = text == self._last_unusable, text
        return is_repeated

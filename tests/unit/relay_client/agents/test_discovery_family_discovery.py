"""Facts about discovery on the hybrid connections of a family."""

import asyncio
import logging
from collections.abc import Mapping
from typing import cast

import pytest

from relay_client.agents.discovery import MAX_CONNECTS, Begun, FamilyDiscovery, SearchEffort
from relay_core.errors import HybridConnectionNotFound, NoListener, RelayDebugError, RelayUnreachable
from relay_core.hyco.address import Endpoint
from relay_core.net.session.secure_channel import WrongTunnelKey
from relay_core.net.websocket.connection import WebSocket
from tests.support.machine.deadline import DEADLINE
from tests.unit.relay_client.agents.test_discovery import Connection, Relay, names

THOROUGH: SearchEffort = 8


class Family:
    """A family with agents on each of its hybrid connections."""

    def __init__(self, agents: list[list[str]], *, selects: bool = True) -> None:
        self.endpoint = Endpoint("contoso.servicebus.windows.net", 443, "alice", len(agents))
        self.known: dict[str, Connection] = {}
        self.relays = {
            sibling.path: Relay(here, selects=selects)
            for sibling, here in zip(self.endpoint.siblings, agents, strict=True)
        }
        self.running = self.max_running = 0
        self.moved: list[str] = []
        for relay in self.relays.values():
            relay.known = self.known
        self.discovery = FamilyDiscovery(
            self.endpoint, self.connect, self.begin, lambda: self.known, client_id="me", on_moved=self.moved.append
        )

    async def connect(self, endpoint: Endpoint, headers: Mapping[str, str]) -> WebSocket:
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            return cast(WebSocket, await self.relays[endpoint.path].connect(headers))
        finally:
            self.running -= 1

    async def begin(self, websocket: WebSocket) -> Begun:
        connection = cast(Connection, websocket)
        relay = next(relay for relay in self.relays.values() if connection.agent in relay.agents)
        return await relay.begin(connection)

    async def search(self) -> RelayDebugError | None:
        return await self.discovery.search(lambda: THOROUGH)


@pytest.mark.parametrize("selects", [True, False])
async def test_the_agents_of_all_hybrid_connections_are_found(selects: bool) -> None:
    """One search finds them all, and reports no sibling."""
    agents = names(40)
    family = Family([agents[:25], [], agents[25:30], agents[30:]], selects=selects)
    error = await family.search()
    assert set(agents) == family.known.keys()
    assert isinstance(error, NoListener)
    assert "no other agent is listening on 'alice'" == error.sentence


async def test_the_number_of_connection_attempts_is_limited() -> None:
    """Many hybrid connections that a relay fills at random do not lead to a flood of attempts."""
    agents = names(200)
    family = Family([agents[start : start + 25] for start in range(0, 200, 25)], selects=False)
    await family.search()
    assert 200 == len(family.known)
    assert 8 < family.max_running <= MAX_CONNECTS


async def test_an_agent_is_dialled_where_it_was_seen() -> None:
    """A resume makes one connection, to the hybrid connection of the agent."""
    family = Family([["a"], ["b"], ["c"]])
    await family.search()
    before = {path: relay.probes for path, relay in family.relays.items()}
    connection = cast(Connection, await family.discovery.dial_agent("b"))
    assert "b" == connection.agent
    assert {"alice": 0, "alice-1": 1, "alice-2": 0} == {
        path: relay.probes - before[path] for path, relay in family.relays.items()
    }


async def test_an_agent_that_has_moved_is_dialled_at_its_new_place() -> None:
    """The next search reaches it, and its tunnel tries again at once."""
    family = Family([["a"], ["b"], []])
    await family.search()
    family.relays["alice-1"].agents.clear()
    family.relays["alice-2"].agents.append("b")
    with pytest.raises(NoListener):
        await family.discovery.dial_agent("b")
    await family.search()
    assert ["b"] == family.moved
    assert "b" == cast(Connection, await family.discovery.dial_agent("b")).agent


async def test_no_agents_anywhere() -> None:
    """The error is that of one hybrid connection without agents."""
    family = Family([[], [], []])
    error = await family.search()
    assert isinstance(error, NoListener)
    assert "no agent is listening" == error.sentence


async def test_a_deleted_hybrid_connection_is_left_out() -> None:
    """The agents of the others are found, with the same result as if it were empty."""
    family = Family([["a"], []])
    family.relays["alice-1"].error = HybridConnectionNotFound("deleted")
    assert isinstance(await family.search(), NoListener)
    assert {"a"} == family.known.keys()


async def test_a_family_that_was_deleted() -> None:
    """If none of them exists, that is the error."""
    family = Family([[], []])
    for relay in family.relays.values():
        relay.error = HybridConnectionNotFound("deleted")
    assert isinstance(await family.search(), HybridConnectionNotFound)


async def test_an_error_of_the_relay_is_reported() -> None:
    """A relay that cannot be reached is an error even if some agents are known."""
    family = Family([["a"], []])
    family.relays["alice-1"].error = RelayUnreachable("no route")
    assert isinstance(await family.search(), RelayUnreachable)


async def test_unusable_agents_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Agents with another tunnel key on several hybrid connections are one warning, and the error if all are."""
    family = Family([["a"], ["b"], []])
    for name, relay in zip("ab", family.relays.values(), strict=False):
        relay.unusable = {name}
    with caplog.at_level(logging.WARNING):
        assert isinstance(await family.search(), WrongTunnelKey)
    assert 1 == len(caplog.records)


async def test_a_search_ends_when_nothing_more_is_wanted() -> None:
    """The first agent satisfies all hybrid connections."""
    family = Family([["a"], ["b"], ["c"]])

    def wanted() -> SearchEffort | None:
        return None if family.known else THOROUGH

    error = await asyncio.wait_for(family.discovery.search(wanted), DEADLINE)
    assert error is None
    assert family.known

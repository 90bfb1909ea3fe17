"""Facts about discovery through a relay that honours the listener selection headers, and one that picks at random."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from relay_client.agents.discovery import (
    LATE_PROBES,
    MAX_AGENTS,
    MAX_MISSES,
    MAX_PROBES,
    MAX_UNUSABLE,
    THOROUGH_RESUMES,
    Begun,
    FamilyDiscovery,
    max_misses,
)
from relay_core.errors import ConnectionLost, NoListener, Rejected, RelayDebugError, RelayUnreachable
from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER, DISALLOWED_LISTENERS_HEADER, Endpoint
from relay_core.net.session.secure_channel import WrongTunnelKey
from relay_core.net.session.transport import TooManySessions
from relay_core.tunnel.handshake import TUNNEL_HEADER, TunnelHeader, misdirected
from tests.support.machine.deadline import DEADLINE

THOROUGH, BACKGROUND = 8, 1
ENDPOINT = Endpoint("contoso.servicebus.windows.net", 443, "myhc")


class Connection:
    """A connection to an agent."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class Relay:
    """A relay with agents behind it; refusals are errors, as in the client's connect function."""

    def __init__(self, agents: list[str], *, selects: bool, seed: int = 1) -> None:
        self.agents = agents
        self.selects = selects
        self.probes = 0
        self.running = 0
        self.max_probes = 0
        self.error: RelayDebugError | None = None
        self.silent: set[str] = set()
        """Agents that have lost their network and are still picked by the relay."""
        self.connecting: set[str] = set()
        self.known: dict[str, Connection] = {}
        self.unusable: set[str] = set()
        self._chance = random.Random(seed)

    async def connect(self, headers: Mapping[str, str]) -> Connection:
        self.probes += 1
        self.running += 1
        self.max_probes = max(self.max_probes, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if self.error is not None:
            raise self.error
        candidates = list(self.agents)
        if self.selects:
            refused = headers.get(DISALLOWED_LISTENERS_HEADER, "").split(",")
            wanted = headers.get(ALLOWED_LISTENERS_HEADER)
            candidates = [name for name in candidates if name not in refused and wanted in {None, name}]
        if not candidates:
            raise NoListener("no agent is listening")
        agent = self._chance.choice(candidates)
        if agent in self.silent:
            raise RelayUnreachable("did not answer within 10 s")
        header = TunnelHeader.parse(headers[TUNNEL_HEADER])
        if header.agent not in {None, agent} or (header.agent is None and agent in self.connecting | self.known.keys()):
            raise Rejected("misdirected", status=421, reason=misdirected("another agent", agent))
        self.connecting.add(agent)
        return Connection(agent)

    async def begin(self, connection: Connection) -> Begun:
        await asyncio.sleep(0)
        self.connecting.discard(connection.agent)
        if connection.agent in self.unusable:
            raise WrongTunnelKey
        if connection.agent in self.known:
            return Begun(connection.agent, is_new=False)
        self.known[connection.agent] = connection
        return Begun(connection.agent, is_new=True)

    def discovery(self, **options: Any) -> FamilyDiscovery:
        def connect(_endpoint: Endpoint, headers: Mapping[str, str]) -> Awaitable[Any]:
            return self.connect(headers)

        return FamilyDiscovery(ENDPOINT, connect, self.begin, lambda: self.known, client_id="me", **options)


def names(count: int) -> list[str]:
    return [f"agent-{number}" for number in range(count)]


@pytest.mark.parametrize("seed", range(20))
async def test_a_selecting_relay_gives_all_its_agents(seed: int) -> None:
    """One search finds all 25; two probes that reach the same agent do not look like random picking."""
    relay = Relay(names(MAX_AGENTS), selects=True, seed=seed)
    discovery = relay.discovery()
    assert isinstance(await discovery.search(lambda: THOROUGH), NoListener)
    assert set(names(MAX_AGENTS)) == relay.known.keys()
    assert not discovery._parts[0].at_random
    assert relay.max_probes <= MAX_PROBES
    assert relay.probes <= 4 * MAX_AGENTS


@pytest.mark.parametrize(("count", "probes"), [(1, 2), (2, 4)])
async def test_few_agents_cost_few_probes(count: int, probes: int) -> None:
    """A selecting relay gets one probe for each agent, and then as many probes as agents were found, up to two."""
    relay = Relay(names(count), selects=True)
    await relay.discovery().search(lambda: THOROUGH)
    assert (count, probes) == (len(relay.known), relay.probes)


async def test_missing_agents_are_probed_for_at_once() -> None:
    """If the first agent shows how many others there are, as many probes begin together, up to the limit."""
    relay = Relay(names(9), selects=True)
    discovery = relay.discovery(missing=lambda: 9 - len(relay.known))
    most: dict[int, int] = {}

    def wanted() -> int:
        most.setdefault(len(relay.known), relay.max_probes)
        return THOROUGH

    await discovery.search(wanted)
    assert 9 == len(relay.known)
    assert [0, 1, MAX_PROBES] == list(most.values())[:3]


async def test_an_agent_with_which_a_session_is_being_begun() -> None:
    """Its answer to another probe requests no further search; an unknown agent's answer to a resume does."""
    relay = Relay(names(1), selects=True)
    requests: list[int] = []
    discovery = relay.discovery(missing=lambda: 8, on_missed=lambda: requests.append(relay.probes))
    relay.connecting = set(relay.agents)
    await discovery.search(lambda: THOROUGH)
    assert relay.probes > 1
    assert not requests


async def test_a_later_search_at_a_selecting_relay_is_one_probe() -> None:
    """A relay without a new agent answers the first probe with NoListener."""
    relay = Relay(names(5), selects=True)
    discovery = relay.discovery()
    await discovery.search(lambda: THOROUGH)
    before = relay.probes
    await discovery.search(lambda: BACKGROUND)
    assert 1 == relay.probes - before


@pytest.mark.parametrize("count", [2, 8, MAX_AGENTS])
@pytest.mark.parametrize("seed", range(20))
async def test_a_relay_that_picks_at_random_gets_enough_probes(count: int, seed: int) -> None:
    """One search finds all agents with a bounded number of probes, some of them at once."""
    relay = Relay(names(count), selects=False, seed=seed)
    discovery = relay.discovery()
    assert isinstance(await discovery.search(lambda: THOROUGH), NoListener)
    assert set(names(count)) == relay.known.keys()
    assert discovery._parts[0].at_random
    assert relay.max_probes <= MAX_PROBES
    assert relay.probes < 700


async def test_an_answer_of_another_agent_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Only `--verbose` shows that a relay ignores the headers, so each 421 is logged at DEBUG."""
    caplog.set_level(logging.DEBUG)
    await Relay(names(2), selects=False).discovery().search(lambda: THOROUGH)
    assert {"misdirected"} == set(caplog.messages)


async def test_an_agent_without_a_network_does_not_hide_the_others() -> None:
    """A probe without an answer ends the search only if no other probe was answered."""
    relay = Relay([*names(4), "silent"], selects=False, seed=2)
    relay.silent = {"silent"}
    discovery = relay.discovery()
    while not relay.known:  # the very first probe may reach it
        await discovery.search(lambda: THOROUGH)
    assert isinstance(await discovery.search(lambda: THOROUGH), NoListener)
    assert set(names(4)) == relay.known.keys()


async def test_an_agent_that_does_not_know_that_its_session_is_over() -> None:
    """Its 421 does not show that the relay ignores the headers: they did not exclude this agent."""
    relay = Relay(["late"], selects=True)
    relay.connecting = {"late"}
    discovery = relay.discovery()
    await discovery.search(lambda: BACKGROUND)
    assert not discovery._parts[0].at_random


async def test_the_search_stops_when_no_more_agents_are_wanted() -> None:
    """The search sends no further probes once the wanted agent is found."""
    relay = Relay(names(5), selects=True)
    assert await relay.discovery().search(lambda: None if len(relay.known) == 2 else THOROUGH) is None
    assert 2 == relay.probes


async def test_a_search_that_stops_is_not_complete() -> None:
    """A search that is stopped before it has found all agents returns no error."""
    relay = Relay(names(5), selects=True)
    efforts = iter([THOROUGH, None])
    assert await relay.discovery().search(lambda: next(efforts, THOROUGH)) is None
    assert 1 == len(relay.known)


async def test_a_background_search_is_short() -> None:
    """While nobody waits, as many misses as there may be agents are enough."""
    relay = Relay(names(3), selects=False)
    discovery = relay.discovery()
    await discovery.search(lambda: THOROUGH)
    assert 3 == len(relay.known)
    before = relay.probes
    await discovery.search(lambda: BACKGROUND)
    assert 4 == relay.probes - before


async def test_no_agent() -> None:
    """The relay's own error is returned."""
    ended = await Relay([], selects=True).discovery().search(lambda: THOROUGH)
    assert "no agent is listening" == str(ended)


async def test_a_relay_that_is_down_ends_the_search() -> None:
    """An error that does not concern a particular agent is returned immediately."""
    relay = Relay(names(3), selects=True)
    relay.error = RelayUnreachable("down")
    assert relay.error is await relay.discovery().search(lambda: THOROUGH)
    assert 1 == relay.probes


@pytest.mark.parametrize("selects", [True, False])
@pytest.mark.parametrize("foreign", [1, 3, MAX_UNUSABLE])
async def test_agents_with_another_key_do_not_hide_the_right_one(foreign: int, selects: bool) -> None:
    """The first search finds it, in each of 40 starts, although the relay picks the others most of the time."""
    for seed in range(40):
        relay = Relay(["good", *names(foreign)], selects=selects, seed=seed)
        relay.unusable = set(names(foreign))
        ended = await relay.discovery().search(lambda relay=relay: None if "good" in relay.known else THOROUGH)
        assert (None, {"good"}) == (ended, relay.known.keys()), seed


async def test_an_agent_with_another_key_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One warning, however often the relay picks it, and in later searches."""
    relay = Relay(["good", "foreign"], selects=True, seed=3)
    relay.unusable = {"foreign"}
    discovery = relay.discovery()
    for _ in range(3):
        assert isinstance(await discovery.search(lambda: THOROUGH), NoListener)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(
        "searching for other agents, because a listener on 'myhc' cannot be used: "
        "client and agent have different tunnel keys. hint: "
    )


async def test_only_agents_with_another_key() -> None:
    """If no agent can be used, the search ends with the reason once another one would have been found."""
    relay = Relay(["foreign"], selects=True)
    relay.unusable = {"foreign"}
    assert isinstance(await relay.discovery().search(lambda: THOROUGH), WrongTunnelKey)
    assert max_misses(THOROUGH, 0, MAX_UNUSABLE) == relay.probes
    assert relay.max_probes <= MAX_PROBES


async def test_an_agent_that_is_full(caplog: pytest.LogCaptureFixture) -> None:
    """The search ends after few attempts with an error after which waiting helps, and logs one line about it."""
    relay = Relay(["full"], selects=True)

    async def begin(connection: Connection) -> Begun:
        relay.connecting.discard(connection.agent)
        raise TooManySessions("the agent has reached its limit of 32 sessions")

    relay.begin = begin
    ended = await relay.discovery().search(lambda: THOROUGH)
    assert isinstance(ended, TooManySessions)
    assert ended.retryable
    assert max_misses(THOROUGH, 0, 1) == relay.probes
    (line,) = caplog.messages
    assert line.startswith("waiting, because a listener on 'myhc' cannot be used: the agent refused the session: ")


@pytest.mark.parametrize("others", [[], ["good"]])
async def test_listeners_that_take_long_to_fail(monkeypatch: pytest.MonkeyPatch, others: list[str]) -> None:
    """If attempts take seconds to fail, the search ends after a time limit, with the reason if no agent was found."""
    monkeypatch.setattr("relay_client.agents.discovery.UNUSABLE_TIMEOUT", 0.1)
    relay = Relay([*others, "foreign"], selects=True)
    answer = relay.begin

    async def begin(connection: Connection) -> Begun:
        if connection.agent in others:
            return await answer(connection)
        relay.connecting.discard(connection.agent)
        await asyncio.sleep(0.06)
        raise ConnectionLost("closed")

    relay.begin = begin
    ended = await relay.discovery().search(lambda: THOROUGH)
    assert ("no other agent is listening on 'myhc'" if others else "closed") == str(ended)
    assert 1 + 2 * MAX_PROBES >= relay.probes


async def test_only_agents_with_another_key_after_the_right_one_has_left() -> None:
    """The key has proved right, so the error is one after which waiting helps."""
    relay = Relay(["good"], selects=True)
    discovery = relay.discovery()
    await discovery.search(lambda: THOROUGH)
    relay.known.clear()
    relay.agents, relay.unusable = ["foreign"], {"foreign"}
    ended = await discovery.search(lambda: THOROUGH)
    assert isinstance(ended, NoListener)
    assert ended.retryable
    assert "no agent on 'myhc' can be used at the moment: client and agent have different tunnel keys" == str(ended)


@pytest.mark.parametrize("selects", [True, False])
async def test_a_lost_agent_is_found_again(selects: bool) -> None:
    """A resume reaches its agent, even among 25 that are picked at random."""
    relay = Relay(names(MAX_AGENTS), selects=selects)
    relay.known = {name: Connection(name) for name in relay.agents}
    discovery = relay.discovery()
    for name in relay.agents:
        for _ in range(THOROUGH_RESUMES):
            try:
                assert name == (await discovery.dial_agent(name)).agent
                break
            except NoListener:
                continue
        else:
            pytest.fail(f"{name} was not found")
    assert selects == (len(relay.agents) == relay.probes)


async def test_a_dead_agent_costs_less_and_less() -> None:
    """No failed attempt is repeated promptly, and later ones are short until the agent is known to be alive again."""
    relay = Relay(names(5), selects=False)
    relay.known = {name: Connection(name) for name in [*relay.agents, "dead"]}
    discovery = relay.discovery()
    counts = []
    for _ in range(THOROUGH_RESUMES + 1):
        before = relay.probes
        with pytest.raises(NoListener, match="none of the .* attempts reached the agent") as caught:
            await discovery.dial_agent("dead")
        assert not caught.value.allows_prompt_retry
        counts.append(relay.probes - before)
    assert [21, 21, 21, LATE_PROBES] == counts
    discovery.mark_alive("dead")
    before = relay.probes
    with pytest.raises(NoListener):
        await discovery.dial_agent("dead")
    assert 21 == relay.probes - before


@pytest.mark.parametrize("selects", [True, False])
async def test_a_lost_agent_is_looked_for_under_another_name(selects: bool) -> None:
    """Each attempt to resume that misses its agent asks for a search, up to a limit: it may have been replaced."""
    relay = Relay(["successor"], selects=selects)
    relay.known = {"dead": Connection("dead")}
    requests = []
    discovery = relay.discovery(on_missed=lambda: requests.append(relay.probes))
    for _ in range(2 * MAX_MISSES):
        with pytest.raises(NoListener):
            await discovery.dial_agent("dead")
    assert [1] == requests[:1]
    assert len(requests) <= 2 * MAX_MISSES
    discovery.mark_alive("dead")
    del requests[:]
    with pytest.raises(NoListener):
        await discovery.dial_agent("dead")
    assert requests


async def test_a_successor_is_looked_for_while_an_attempt_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay may offer an attempt to a listener that was killed: the search does not wait for that."""
    monkeypatch.setattr("relay_client.agents.discovery.SLOW_ATTEMPT", 0.01)
    hanging, searched = asyncio.Event(), asyncio.Event()

    async def connect(_endpoint: Endpoint, _headers: Mapping[str, str]) -> Connection:
        await hanging.wait()
        raise RelayUnreachable("did not answer within 10 s")

    relay = Relay([], selects=True)
    discovery = FamilyDiscovery(
        ENDPOINT, connect, relay.begin, lambda: {"dead": None}, client_id="me", on_missed=searched.set
    )
    resuming = asyncio.ensure_future(discovery.dial_agent("dead"))
    await asyncio.wait_for(searched.wait(), DEADLINE)
    hanging.set()
    with pytest.raises(RelayUnreachable):
        await resuming


async def test_an_error_of_the_relay_ends_a_resume() -> None:
    """An error of the relay is raised as it is, and does not count against the agent."""
    relay = Relay(names(2), selects=True)
    relay.error = ConnectionLost("cut")
    discovery = relay.discovery()
    for _ in range(THOROUGH_RESUMES + 2):
        with pytest.raises(ConnectionLost, match="cut"):
            await discovery.dial_agent("agent-1")
    relay.error = None
    assert "agent-1" == (await discovery.dial_agent("agent-1")).agent

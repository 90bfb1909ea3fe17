"""Facts about finding agents through a relay that selects listeners as asked, and through one that picks at random."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from relay_client.agents.discovery import (
    EAGER_RESUMES,
    LATE_TRIES,
    LOOKS_AT_ONCE,
    MAX_AGENTS,
    MAX_ODD,
    Discovery,
    Patience,
)
from relay_core.errors import ConnectionLost, NoListener, Rejected, RelayDebugError, RelayUnreachable
from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER, DISALLOWED_LISTENERS_HEADER
from relay_core.net.session.secure_channel import WrongTunnelKey
from relay_core.tunnel.headers import TUNNEL_HEADER, TunnelHeader, misdirected

THOROUGH, CASUAL = Patience(8), Patience(1)


class Meeting:
    """A connection to an agent."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class Relay:
    """A relay with agents behind it, as the network would show them: refusals are errors."""

    def __init__(self, agents: list[str], *, selects: bool, seed: int = 1) -> None:
        self.agents = agents
        self.selects = selects
        self.tries = 0
        self.at_once = 0
        self.most_at_once = 0
        self.error: RelayDebugError | None = None
        self.silent: set[str] = set()
        """Agents that have lost their network and are still picked."""
        self.meeting: set[str] = set()
        self.known: dict[str, Meeting] = {}
        self.odd: set[str] = set()
        self._chance = random.Random(seed)

    async def connect(self, headers: Mapping[str, str]) -> Meeting:
        self.tries += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
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
        if header.agent not in {None, agent} or (header.agent is None and agent in self.meeting | self.known.keys()):
            raise Rejected("misdirected", status=421, reason=misdirected("another agent", agent))
        self.meeting.add(agent)
        return Meeting(agent)

    async def begin(self, meeting: Meeting) -> bool:
        await asyncio.sleep(0)
        self.meeting.discard(meeting.agent)
        if meeting.agent in self.odd:
            raise WrongTunnelKey
        if meeting.agent in self.known:
            return False
        self.known[meeting.agent] = meeting
        return True

    def discovery(self) -> Discovery:
        return Discovery(self.connect, self.begin, lambda: self.known, client_id="me", path="myhc")


def names(count: int) -> list[str]:
    return [f"agent-{number}" for number in range(count)]


@pytest.mark.parametrize("seed", range(20))
async def test_a_selecting_relay_gives_all_its_agents(seed: int) -> None:
    """One look finds all 25; two probes that met the same agent do not pass for a relay that ignores the headers."""
    relay = Relay(names(MAX_AGENTS), selects=True, seed=seed)
    discovery = relay.discovery()
    assert isinstance(await discovery.look(lambda: THOROUGH), NoListener)
    assert set(names(MAX_AGENTS)) == relay.known.keys()
    assert not discovery.at_random
    assert relay.most_at_once <= LOOKS_AT_ONCE
    assert relay.tries <= 4 * MAX_AGENTS


@pytest.mark.parametrize(("count", "tries"), [(1, 2), (2, 4)])
async def test_few_agents_cost_few_probes(count: int, tries: int) -> None:
    """A selecting relay is asked once for each agent, and then by as many probes as agents were found, up to two."""
    relay = Relay(names(count), selects=True)
    await relay.discovery().look(lambda: THOROUGH)
    assert (count, tries) == (len(relay.known), relay.tries)


async def test_a_later_look_at_a_selecting_relay_is_one_probe() -> None:
    """A relay that has no new agent answers so at once."""
    relay = Relay(names(5), selects=True)
    discovery = relay.discovery()
    await discovery.look(lambda: THOROUGH)
    before = relay.tries
    await discovery.look(lambda: CASUAL)
    assert 1 == relay.tries - before


@pytest.mark.parametrize("count", [2, 8, MAX_AGENTS])
@pytest.mark.parametrize("seed", range(20))
async def test_a_relay_that_picks_at_random_is_asked_often_enough(count: int, seed: int) -> None:
    """One look finds all agents by trying again, some at a time, and a bounded number of times."""
    relay = Relay(names(count), selects=False, seed=seed)
    discovery = relay.discovery()
    assert isinstance(await discovery.look(lambda: THOROUGH), NoListener)
    assert set(names(count)) == relay.known.keys()
    assert discovery.at_random
    assert relay.most_at_once <= LOOKS_AT_ONCE
    assert relay.tries < 700


async def test_an_agent_without_a_network_does_not_hide_the_others() -> None:
    """A try that gets no answer ends the look only if no other try has had one."""
    relay = Relay([*names(4), "silent"], selects=False, seed=2)
    relay.silent = {"silent"}
    discovery = relay.discovery()
    while not relay.known:  # the very first try may meet it
        await discovery.look(lambda: THOROUGH)
    assert isinstance(await discovery.look(lambda: THOROUGH), NoListener)
    assert set(names(4)) == relay.known.keys()


async def test_an_agent_that_does_not_know_that_its_session_is_over() -> None:
    """Its 421 is no sign of a relay that ignores the headers: they did not exclude this agent."""
    relay = Relay(["late"], selects=True)
    relay.meeting = {"late"}
    discovery = relay.discovery()
    await discovery.look(lambda: CASUAL)
    assert not discovery.at_random


async def test_looking_stops_when_nobody_wants_more() -> None:
    """After the agent that was looked for there is no further probe."""
    relay = Relay(names(5), selects=True)
    assert await relay.discovery().look(lambda: None if len(relay.known) == 2 else THOROUGH) is None
    assert 2 == relay.tries


async def test_a_casual_look_is_short() -> None:
    """Where nobody waits, as many tries in vain as there may be agents are enough."""
    relay = Relay(names(3), selects=False)
    discovery = relay.discovery()
    await discovery.look(lambda: THOROUGH)
    assert 3 == len(relay.known)
    before = relay.tries
    await discovery.look(lambda: CASUAL)
    assert 4 == relay.tries - before


async def test_nobody_is_there() -> None:
    """The relay's own answer is returned."""
    ended = await Relay([], selects=True).discovery().look(lambda: THOROUGH)
    assert "no agent is listening" == str(ended)


async def test_a_relay_that_is_down_ends_the_look() -> None:
    """An error that concerns no agent in particular is returned at once."""
    relay = Relay(names(3), selects=True)
    relay.error = RelayUnreachable("down")
    assert relay.error is await relay.discovery().look(lambda: THOROUGH)
    assert 1 == relay.tries


async def test_an_agent_with_another_key_does_not_hide_the_others() -> None:
    """What cannot be used is passed over; the others are found, and the user is told once."""
    relay = Relay(["good", "foreign"], selects=False, seed=3)
    relay.odd = {"foreign"}
    discovery = relay.discovery()
    while "good" not in relay.known:
        ended = await discovery.look(lambda: THOROUGH)
    assert isinstance(ended, NoListener)


async def test_only_agents_with_another_key() -> None:
    """If no agent can be used, the look ends soon and says why."""
    relay = Relay(["foreign"], selects=True)
    relay.odd = {"foreign"}
    assert isinstance(await relay.discovery().look(lambda: THOROUGH), WrongTunnelKey)
    assert MAX_ODD == relay.tries


@pytest.mark.parametrize("selects", [True, False])
async def test_a_lost_agent_is_found_again(selects: bool) -> None:
    """A resume reaches the agent that it names, also among 25 that are picked at random."""
    relay = Relay(names(MAX_AGENTS), selects=selects)
    relay.known = {name: Meeting(name) for name in relay.agents}
    discovery = relay.discovery()
    for name in relay.agents:
        for _ in range(EAGER_RESUMES):
            try:
                assert name == (await discovery.find_again(name)).agent
                break
            except NoListener:
                continue
        else:
            pytest.fail(f"{name} was not found")
    assert selects == (len(relay.agents) == relay.tries)


async def test_a_dead_agent_costs_less_and_less() -> None:
    """After a few attempts that met only others, each later one is short, until the agent is seen again."""
    relay = Relay(names(5), selects=False)
    relay.known = {name: Meeting(name) for name in [*relay.agents, "dead"]}
    discovery = relay.discovery()
    tries = []
    for _ in range(EAGER_RESUMES + 1):
        before = relay.tries
        with pytest.raises(NoListener, match="did not meet this agent"):
            await discovery.find_again("dead")
        tries.append(relay.tries - before)
    assert [21, 21, 21, LATE_TRIES] == tries
    discovery.seen("dead")
    before = relay.tries
    with pytest.raises(NoListener):
        await discovery.find_again("dead")
    assert 21 == relay.tries - before


async def test_an_error_of_the_relay_ends_a_resume() -> None:
    """What is not the fault of the choice is told as it is, and does not count against the agent."""
    relay = Relay(names(2), selects=True)
    relay.error = ConnectionLost("cut")
    discovery = relay.discovery()
    for _ in range(EAGER_RESUMES + 2):
        with pytest.raises(ConnectionLost, match="cut"):
            await discovery.find_again("agent-1")
    relay.error = None
    assert "agent-1" == (await discovery.find_again("agent-1")).agent

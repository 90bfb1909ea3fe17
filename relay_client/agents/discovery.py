"""Discovery of agents without a tunnel to this client or with a lost one, on a hybrid connection or a family."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from relay_core.errors import HybridConnectionNotFound, NoListener, Rejected, RelayDebugError, RelayUnreachable
from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER, DISALLOWED_LISTENERS_HEADER, Endpoint
from relay_core.net.session.transport import TooManySessions
from relay_core.net.tasks import TaskSet
from relay_core.net.websocket.connection import WebSocket
from relay_core.tunnel.handshake import MISDIRECTED, TUNNEL_HEADER, TunnelHeader, refusing_agent

logger = logging.getLogger(__name__)


# Discovery of agents on one hybrid connection: agents without a tunnel to this client, and agents with a lost tunnel.
#
# The relay picks the listener for each connection. A relay that honours the listener selection headers connects every
# probe to a new agent and answers 404 when there are no more agents. A relay that ignores the headers picks a listener
# at random. An agent answers 421 if it already has a session with this client or if the client requested another agent.
# The client then probes again, with several simultaneous probes:
#
#     n agents, all but one known     a probe finds the last one with probability 1/n
#     effort * n misses in a row      the search is over; it has missed an agent with probability e ** -effort
#                                     (8: 1/3000)
#
# A 421 from an agent that the headers excluded shows that the relay ignores them.
#
# An unusable listener, such as an agent with a different tunnel key, cannot be excluded, because its id is unknown. The
# relay may pick it repeatedly, and there may be several, so more probes are used once one of them has been reached.
#
# Why the end of a search is a number of misses in a row that grows with the agents found: only a relay that honours the
# headers can say that there are no more agents. At random, a fixed number is wrong at one end or the other: after 40
# misses, the last of 25 agents is missed once in 5 times (0.96 ** 40), whereas the second of two is missed once in
# 65,000 times after 16. Probes in progress count as misses in advance, otherwise the last ones would exceed the limit.
#
# Why the number of simultaneous probes depends on what was found: two probes that begin together exclude the same
# agents, so they can reach the same one, which refuses the second. The most frequent job has one agent, for which a
# second probe would only be a connection to close. Each agent found makes further ones more likely, and the world size
# of its job shows how many are missing. With Azure's delays, 25 agents took 17 s one by one; at random, 14 to 20 s one
# by one, and 8 to 11 s since then.
#
# Why a 421 from an unknown agent starts a search only if an attempt to resume has received it: an agent also answers
# 421 to a probe while another probe is beginning a session with it. When 200 agents were found, searches for such
# agents made about 300 of 688 connections.
#
# Why `at_random` is learnt and never forgotten: apart from the limit of `MAX_AGENTS`, it decides how many probes run at
# once, not when a search ends, so a wrong value costs attempts or time, and never an agent. Only an agent that the
# headers excluded is a proof: an agent also answers 421 to a probe that began before this client's session with it,
# which no header could exclude.
#
# What is ugly: a session is begun and then declined if the agent at the other end no longer knows that it has one with
# this client (`Tunnels`). To detect that earlier, the agent would have to be known before the handshake, and only the
# handshake is authenticated.
#
# State that belongs to one search is in `EndedSearch`, because two searches can run at once (`AgentSearch.start`); what
# this object has learnt about relay and agents belongs to all of them.

MAX_AGENTS = 25
"""Azure's limit on listeners per hybrid connection."""
MAX_PROBES = 8
"""Maximum number of simultaneous probes for new agents. If the relay picks listeners at random, a search takes about
3 s to find 8 agents, and 10 s to find 25 agents, given Azure's latencies."""
MAX_RESUME_PROBES = 4
"""Maximum number of simultaneous probes for one known agent if the relay picks listeners at random."""
MAX_DIALS = 12
"""Maximum number of simultaneous probes of any kind, so that the loss of 25 tunnels at once cannot flood the relay."""
RESUME_ROUNDS = 3
"""Number of rounds of probes for a known agent. A few are enough, because another attempt follows anyway."""
THOROUGH_RESUMES = 3
"""Number of attempts to resume a session with `RESUME_ROUNDS`; an agent that none of them finds has probably exited."""
LATE_PROBES = 2
"""Number of probes in each later attempt; attempts are repeated every few seconds until the session expires."""
MAX_MISSES = 40
"""Number of misses of one agent after which no more searches are requested for it; 40 prompt attempts take 10 s."""
SLOW_ATTEMPT = 1.0
"""Seconds after which an attempt to resume counts as slow; with Azure's latencies, an attempt usually takes 0.6 s."""
UNKNOWN_WEIGHT = 4
"""Number of misses that an unknown agent's answer counts as; one search finds that agent unless it is unusable."""
MAX_UNUSABLE = 8
"""Maximum number of listeners that may refuse or break off the handshake without making a search miss an agent."""
UNUSABLE_TIMEOUT = 15.0
"""Seconds without a new agent after which a search ends if listeners have closed the connection or have not answered.
Such an attempt may take 10 s. Other problems, such as a different tunnel key, become known after a few round trips."""


SearchEffort = int
"""How many misses in a row end a search if the relay picks listeners at random, as a multiple of the possible number of
agents."""


def max_misses(effort: SearchEffort, known: int, unusable: int = 0) -> int:
    """Return the number of consecutive misses after which all usable agents are considered known.

    Args:
        effort: The effort of the search.
        known: Number of agents that this client has found.
        unusable: Number of listeners that may be unusable.
    """
    return effort * min(known + 1 + unusable, MAX_AGENTS)


class Begun(NamedTuple):
    """The result of an attempt to begin a session on a new connection."""

    agent: str
    """The agent's id."""
    is_new: bool
    """False if this client already has a session with that agent."""


class Discovery:
    """Finds agents on one hybrid connection by connecting to them.

    Args:
        family: The searches on all hybrid connections of the family.
        index: Which of these hybrid connections this one is.
        endpoint: This hybrid connection.
    """

    def __init__(self, family: FamilyDiscovery, index: int, endpoint: Endpoint) -> None:
        self.at_random = False
        """True once the relay is known to ignore the headers."""
        self.has_found = False
        """True once an agent has been usable, which shows that this client's key is correct for at least one agent."""
        self._family = family
        self._index = index
        self._endpoint = endpoint
        self._failed_resumes: Counter[str] = Counter()
        """Number of consecutive failed attempts to resume, by agent."""
        self._misses: Counter[str] = Counter()
        """By agent: number of misses since it was last reached; an unknown agent's answer counts as several misses."""
        self._dials = asyncio.Semaphore(MAX_DIALS)

    async def probe_all(self, wanted: Callable[[], SearchEffort | None]) -> EndedSearch:
        """Probe until `wanted` returns None or no agents are left, and return the ended search, for `conclude`."""
        search = EndedSearch(since=asyncio.get_running_loop().time())
        running: set[asyncio.Task[None]] = set()
        async with TaskSet() as tasks:
            while True:
                effort = wanted()
                while effort is not None and self._may_probe(search, len(running), effort):
                    running.add(tasks.spawn(self._probe(search), name="look for an agent"))
                if not running:
                    search.was_met = effort is None
                    return search
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()

    def _may_probe(self, search: EndedSearch, running: int, effort: SearchEffort) -> bool:
        if search.error is not None or search.has_timed_out or running >= self._max_probes(search):
            return False
        known = len(self._family.known_at(self._index))
        if self.at_random and known >= MAX_AGENTS:
            return False
        unusable = 0 if search.unusable is None else 1 if isinstance(search.unusable, TooManySessions) else MAX_UNUSABLE
        return search.misses + running < max_misses(effort, known, unusable)

    def _max_probes(self, search: EndedSearch) -> int:
        """Return how many probes may run at once.

        If the relay honours the headers, this is one until an agent is found, and then one for each agent that has been
        found or that is missing, whichever number is higher.
        """
        if self.at_random or search.unusable or search.found >= MAX_PROBES:
            return MAX_PROBES
        return min(MAX_PROBES, max(search.found, self._family.missing())) if search.found else 1

    async def _probe(self, search: EndedSearch) -> None:
        headers = {TUNNEL_HEADER: TunnelHeader(self._family.client_id).encode()}
        excluded = tuple(self._family.known_at(self._index))
        if excluded:
            headers[DISALLOWED_LISTENERS_HEADER] = ",".join(excluded)
        try:
            websocket = await self._dial(headers, excluded=excluded)
        except RelayDebugError as error:
            if isinstance(error, Rejected) or (isinstance(error, RelayUnreachable) and search.answered):
                self._skip(search, error)
            else:
                search.error = search.error or error
            return
        search.answered = True
        try:
            begun = await self._family.begin(websocket) if websocket is not None else None
        except RelayDebugError as error:
            self._skip(search, error)
            return
        if begun is not None:
            self._family.seen(self._index, begun.agent)
        if begun is None or not begun.is_new:
            search.misses += 1
            return
        self.has_found = True
        search.since = asyncio.get_running_loop().time()
        search.found += 1
        search.misses = 0

    def _skip(self, search: EndedSearch, error: RelayDebugError) -> None:
        """Count an agent that cannot be used, and log it once; the search continues, because others may be usable."""
        search.unusable = error
        search.misses += 1
        if not self._family.is_repeated(str(error)):
            doing = "waiting" if isinstance(error, TooManySessions) else "searching for other agents"
            logger.warning("%s, because a listener on '%s' cannot be used: %s", doing, self._family.name, error)

    async def dial_agent(self, agent: str) -> WebSocket:
        """Connect to one known agent, to resume its session.

        Raises:
            NoListener: the agent was not found, because it has exited or the relay picked other agents each time.
            RelayDebugError: the attempt failed for any other reason.
        """
        probes = LATE_PROBES
        if self._failed_resumes[agent] < THOROUGH_RESUMES:
            probes = max_misses(RESUME_ROUNDS, len(self._family.known_at(self._index)))
        try:
            async with TaskSet() as tasks:
                tasks.spawn(self._search_meanwhile(agent), name="look for a successor")
                websocket = await self._probe_for(agent, probes)
        except (NoListener, HybridConnectionNotFound):
            self._missed(agent, 1)
            raise
        if websocket is None:
            self._missed(agent, probes)
            self._failed_resumes[agent] += 1
            raise NoListener(
                f"none of the {probes} attempts reached the agent; it has exited, or the relay picked other agents",
                costly=probes > 1,
            )
        self.mark_alive(agent)
        return websocket

    def mark_alive(self, agent: str) -> None:
        """Record that an agent is alive, so that the next attempts to resume use all probes again."""
        self._failed_resumes.pop(agent, None)
        self._misses.pop(agent, None)

    def _missed(self, agent: str, weight: int) -> None:
        """Count misses and request a search.

        The number of searches is limited, because the agent may never be replaced, or its replacement may be unusable.
        """
        self._misses[agent] += weight
        self._request_search(agent)

    async def _search_meanwhile(self, agent: str) -> NoReturn:
        """Request searches while an attempt to resume is running, until cancelled.

        If the agent has been missed, a search is requested immediately, so that a successor is found as early as the
        agent itself would be. Otherwise the search is requested after a delay: the relay may have announced the attempt
        to a listener that was killed, and such an attempt takes 10 s to fail.
        """
        self._request_search(agent)
        while True:
            await asyncio.sleep(SLOW_ATTEMPT)
            self._missed(agent, 1)

    def _request_search(self, agent: str) -> None:
        """Request a search if an agent has been missed since it was last reached."""
        if 0 < self._misses[agent] <= MAX_MISSES:
            self._family.on_missed()

    async def _probe_for(self, agent: str, probes: int) -> WebSocket | None:
        headers = {TUNNEL_HEADER: TunnelHeader(self._family.client_id, agent).encode(), ALLOWED_LISTENERS_HEADER: agent}
        running: set[asyncio.Task[WebSocket | RelayDebugError | None]] = set()
        async with TaskSet() as tasks:
            while probes or running:
                while probes and len(running) < (MAX_RESUME_PROBES if self.at_random else 1):
                    probes -= 1
                    running.add(tasks.spawn(self._outcome(headers, agent), name="look for the agent"))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                outcomes = [task.result() for task in done]
                errors = [outcome for outcome in outcomes if isinstance(outcome, RelayDebugError)]
                found = [outcome for outcome in outcomes if outcome and not isinstance(outcome, RelayDebugError)]
                for surplus in found[1:]:
                    surplus.abort()
                if found:
                    return found[0]
                if errors:
                    raise errors[0]
        return None

    async def _outcome(self, headers: Mapping[str, str], agent: str) -> WebSocket | RelayDebugError | None:
        """Dial, and return an error instead of raising it, because several dials run at once."""
        try:
            return await self._dial(headers, wanted=agent)
        except RelayDebugError as error:
            return error

    async def _dial(
        self, headers: Mapping[str, str], *, excluded: Collection[str] = (), wanted: str | None = None
    ) -> WebSocket | None:
        """Make one connection; return None if the relay picked the wrong agent.

        Args:
            headers: The headers for the relay and the agent.
            excluded: The agents that the headers exclude.
            wanted: The only agent that the headers allow, or None.
        """
        async with self._dials if self.at_random else contextlib.nullcontext():
            try:
                return await self._family.connect_to(self._endpoint, headers)
            except Rejected as rejected:
                if rejected.status != MISDIRECTED:
                    raise
                logger.debug("%s", rejected.sentence)
                agent = refusing_agent(rejected.reason)
                if agent is not None:
                    self._family.seen(self._index, agent)
                self.at_random = self.at_random or agent is None or agent in excluded or wanted not in {None, agent}
                if wanted is not None and agent is not None and agent not in self._family.known_at(self._index):
                    self._missed(agent, UNKNOWN_WEIGHT)
                return None


@dataclass
class EndedSearch:
    """The state of one search on one hybrid connection."""

    since: float = 0.0
    """When the search started or found an agent for the last time, by the event loop's clock."""
    answered: bool = False
    """True once an agent has answered. The relay then works, and an unanswered probe means that an agent has lost its
    network connection."""
    found: int = 0
    """Number of new agents found so far."""
    misses: int = 0
    """Number of probes without a new agent since the last one was found."""
    unusable: RelayDebugError | None = None
    """The error of the last agent that could not be used."""
    error: RelayDebugError | None = None
    """The error that ends the search."""
    was_met: bool = False
    """True if nothing more was wanted when the search ended; a caller that wants more needs another search."""

    @property
    def has_timed_out(self) -> bool:
        """Whether no agent was found for `UNUSABLE_TIMEOUT`, for a reason that takes a long time to detect."""
        is_slow = self.unusable is not None and self.unusable.retryable
        return is_slow and asyncio.get_running_loop().time() - self.since >= UNUSABLE_TIMEOUT


def conclude(
    searches: Sequence[EndedSearch], path: str, *, is_met: bool, has_known: bool, has_found: bool
) -> RelayDebugError | None:
    """Return why the searches on a hybrid connection or a family have ended; None if they succeeded.

    An unusable agent is the reason only if no other agent was ever usable. Otherwise this client's key is correct, and
    it makes sense to wait for the expected agent.

    Args:
        searches: One for each hybrid connection.
        path: Name of the hybrid connection or family.
        is_met: Whether nothing more is wanted.
        has_known: Whether this client has a tunnel to an agent.
        has_found: Whether an agent was ever usable.
    """
    errors = [search.error for search in searches if search.error is not None]
    absent = [error for error in errors if isinstance(error, (NoListener, HybridConnectionNotFound))]
    others = [error for error in errors if error not in absent]
    if others:
        return others[0]
    if len(absent) == len(searches):
        # The absence of agents explains the failure better than a deleted hybrid connection.
        empty = [error for error in absent if isinstance(error, NoListener)]
        if not (empty and has_known):
            return (empty or absent)[0]
    elif is_met:
        return None
    unusable = next((search.unusable for search in searches if search.unusable is not None), None)
    if unusable is not None and not has_known:
        if not has_found:
            return unusable
        return NoListener(f"no agent on '{path}' can be used at the moment: {unusable.sentence}")
    return NoListener(f"no other agent is listening on '{path}'")


# Discovery of agents on all hybrid connections of a family, several at a time.
#
# Each agent listens on one of them, and may listen on a different one after an interruption. This module records on
# which hybrid connection each agent was last seen, and dials the agent there. If the agent has moved, the next search
# reaches it and recognizes its id.
#
# All parts search at once, each with its own limit on misses: where agents are distributed at random, no part can
# conclude anything from another one. One part after the other would be simpler, but takes the sum of their times, and
# each search needs a connection for its 404. The result is a conclusion over all parts (`conclude`), because one empty
# or deleted hybrid connection is normal in a family, and only all of them together are an error.

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
        missing: Returns how many agents are missing, as far as the known ones announce it.
        on_missed: Called when a known agent was not found, or an unknown one answered in its place. A search for new
            agents is then worthwhile, because a killed agent is replaced within seconds.
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
        missing: Callable[[], int] = lambda: 0,
        on_missed: Callable[[], None] = lambda: None,
        on_moved: Callable[[str], None] = lambda _agent: None,
    ) -> None:
        self.name = endpoint.name
        self.begin = begin
        self.client_id = client_id
        self.missing = missing
        self.on_missed = on_missed
        self._connect = connect
        self._known = known
        self._on_moved = on_moved
        self._slots = asyncio.Semaphore(MAX_CONNECTS)
        self._places: dict[str, int] = {}
        """By agent: the index of the hybrid connection on which it was last seen."""
        self._last_unusable = ""
        self._parts = [Discovery(self, index, sibling) for index, sibling in enumerate(endpoint.siblings)]

    async def search(self, wanted: Callable[[], SearchEffort | None]) -> RelayDebugError | None:
        """Search on all hybrid connections at once until `wanted` returns None or no agents are left.

        Args:
            wanted: Called before each probe; returns the effort for further probes, or None to stop.

        Returns:
            Why the search ended early (NoListener if there are no more agents), or None. Deleted hybrid connections are
            an error only if all of them are deleted.
        """
        known = self._known()
        self._places = {agent: index for agent, index in self._places.items() if agent in known}
        async with TaskSet() as tasks:
            running = [tasks.spawn(part.probe_all(wanted), name=f"search '{self.name}'") for part in self._parts]
            ended = [await task for task in running]
        return conclude(
            ended,
            self.name,
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

    # Called by the parts:

    async def connect_to(self, sibling: Endpoint, headers: Mapping[str, str]) -> WebSocket:
        """Make one connection through a hybrid connection; of those of a family, a limited number at a time."""
        async with self._slots if len(self._parts) > 1 else contextlib.nullcontext():
            return await self._connect(sibling, headers)

    def known_at(self, index: int) -> Collection[str]:
        """Return the known agents that were last seen on a hybrid connection."""
        return [agent for agent in self._known() if self._places.get(agent, 0) == index]

    def seen(self, index: int, agent: str) -> None:
        """Record on which hybrid connection an agent has answered."""
        before = self._places.get(agent, index)
        self._places[agent] = index
        if before != index and agent in self._known():
            self._on_moved(agent)

    def is_repeated(self, text: str) -> bool:
        """Return whether an unusable agent's error equals the last one, on any hybrid connection."""
        is_repeated, self._last_unusable = text == self._last_unusable, text
        return is_repeated

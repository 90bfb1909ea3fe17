"""Discovery of agents on one hybrid connection: agents without a tunnel to this client, and the agent of a lost tunnel.

The relay picks the listener for each connection. A relay that honours the listener selection headers connects every
probe to a new agent and answers 404 when there are no more agents. A relay that ignores the headers picks a listener at
random. An agent answers 421 if it already has a session with this client or if the client requested another agent. The
client then probes again, with several simultaneous probes:

    n agents, all but one known     a probe finds the last one with probability 1/n
    `rounds` * n misses             there are no more agents; wrong with probability e ** -rounds (8: 1/3000)

A 421 from an agent that the headers excluded shows that the relay ignores them.

An unusable listener, such as an agent with another tunnel key, cannot be excluded because its id is unknown. The relay
may pick it repeatedly, and there may be several such listeners, so the search then uses more probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from relay_core.errors import HybridConnectionNotFound, NoListener, Rejected, RelayDebugError, RelayUnreachable
from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER, DISALLOWED_LISTENERS_HEADER
from relay_core.net.tasks import TaskSet
from relay_core.net.websocket.handshake import WebSocket
from relay_core.tunnel.headers import MISDIRECTED, TUNNEL_HEADER, TunnelHeader, refusing_agent

__all__ = ["MAX_AGENTS", "Begun", "Discovery", "EndedSearch", "SearchEffort", "conclude"]

MAX_AGENTS = 25
"""Azure's limit on listeners per hybrid connection."""
MAX_PROBES = 8
"""Simultaneous probes for new agents if the relay picks at random. With Azure's latencies they find all of 8 agents in
about 3 s, and all of 25 agents in 10 s."""
MAX_RESUME_PROBES = 4
"""Simultaneous probes for one known agent if the relay picks at random."""
MAX_DIALS = 12
"""Limit on all simultaneous probes, so that 25 tunnels that are lost together do not flood the relay."""
RESUME_ROUNDS = 3
"""Rounds of probes for a known agent. Few are enough, because another attempt follows anyway."""
THOROUGH_RESUMES = 3
"""Attempts to resume with that many rounds; an agent that is still not found has probably exited."""
LATE_PROBES = 2
"""Probes in each later attempt; these repeat every few seconds until the session expires, maybe for many agents."""
MAX_MISSES = 40
"""Misses of one agent after which no more searches are requested; as many prompt attempts fit into 10 s."""
SLOW_ATTEMPT = 1.0
"""Seconds after which an attempt to resume counts as slow; with Azure's latencies it usually takes 0.6 s."""
UNKNOWN_WEIGHT = 4
"""How many misses an answer from an unknown agent counts as: one search finds that agent unless it is unusable."""
MAX_UNUSABLE = 8
"""Listeners that refuse or break the handshake among which a search still finds the last usable agent."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchEffort:
    """The number of probes in a search if the relay picks at random.

    Args:
        rounds: Misses before the search ends, as a multiple of the possible number of agents.
    """

    rounds: int

    def max_misses(self, known: int, unusable: int = 0) -> int:
        """Return the number of consecutive misses after which all usable agents are considered known.

        Args:
            known: Agents that this client has found.
            unusable: How many listeners may be unusable.
        """
        return self.rounds * min(known + 1 + unusable, MAX_AGENTS)


class Begun(NamedTuple):
    """The result of beginning a session on a new connection."""

    agent: str
    """The agent's id."""
    is_new: bool
    """False if this client already has a session with that agent."""


class Discovery:
    """Finds agents by connecting to them.

    Args:
        connect: Makes one connection with some headers.
        begin: Begins a session on the connection, unless this client already has one with that agent.
        known: Returns the ids of the agents to which this client has tunnels.
        client_id: The id of this client.
        path: Name of the hybrid connection, for messages.
        on_missed: Called when a known agent was not found, or an unknown one answered in its place. A search for new
            agents is then worthwhile, because a killed agent is replaced within seconds.
        on_seen: Called with the id of each agent that has answered here.
        is_repeated: Whether the error of an unusable agent, as text, has just been logged; by default remembered here.
    """

    def __init__(
        self,
        connect: Callable[[Mapping[str, str]], Awaitable[WebSocket]],
        begin: Callable[[WebSocket], Awaitable[Begun]],
        known: Callable[[], Collection[str]],
        *,
        client_id: str,
        path: str,
        on_missed: Callable[[], None] = lambda: None,
        on_seen: Callable[[str], None] = lambda _agent: None,
        is_repeated: Callable[[str], bool] | None = None,
    ) -> None:
        self.at_random = False
        """The relay has been seen to ignore the headers."""
        self.has_found = False
        """True once an agent was usable, which shows that this client's key is correct for at least one agent."""
        self._connect = connect
        self._begin = begin
        self._known = known
        self._client_id = client_id
        self._path = path
        self._on_missed = on_missed
        self._on_seen = on_seen
        self._is_repeated = is_repeated or self._was_last_logged
        self._failed_resumes: Counter[str] = Counter()
        """Consecutive failed attempts to resume, by agent."""
        self._misses: Counter[str] = Counter()
        """By agent: attempts since it was last reached that missed it or reached an unknown agent."""
        self._dials = asyncio.Semaphore(MAX_DIALS)
        self._last_logged = ""

    def __repr__(self) -> str:
        return f"<Discovery {self._path} {'random' if self.at_random else 'selecting'} known={len(self._known())}>"

    async def search(self, wanted: Callable[[], SearchEffort | None]) -> RelayDebugError | None:
        """Search for agents until `wanted` returns None or no agents are left.

        Args:
            wanted: Called before each probe; returns the effort for further probes, or None to stop.

        Returns:
            Why the search ended early (NoListener if there are no more agents), or None.
        """
        ended = await self.probe_all(wanted)
        known = bool(self._known())
        return conclude([ended], self._path, is_met=wanted() is None, has_known=known, has_found=self.has_found)

    async def probe_all(self, wanted: Callable[[], SearchEffort | None]) -> EndedSearch:
        """Probe until `wanted` returns None or no agents are left, and return how it ended, for `conclude`."""
        search = EndedSearch()
        running: set[asyncio.Task[None]] = set()
        async with TaskSet() as tasks:
            while True:
                effort = wanted()
                while effort is not None and self._may_probe(search, len(running), effort):
                    running.add(tasks.spawn(self._probe(search), name="look for an agent"))
                if not running:
                    return search
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()

    def _may_probe(self, search: EndedSearch, running: int, effort: SearchEffort) -> bool:
        if search.error is not None or running >= self._max_probes(search):
            return False
        known = len(self._known())
        if self.at_random and known >= MAX_AGENTS:
            return False
        unusable = 0 if search.unusable is None else MAX_UNUSABLE
        return search.misses + running < effort.max_misses(known, unusable)

    def _max_probes(self, search: EndedSearch) -> int:
        """Return how many probes may run at once: few if the relay selects, and has few agents, all usable."""
        return MAX_PROBES if self.at_random or search.unusable else min(MAX_PROBES, max(1, search.found))

    async def _probe(self, search: EndedSearch) -> None:
        headers = {TUNNEL_HEADER: TunnelHeader(self._client_id).encode()}
        excluded = tuple(self._known())
        if excluded:
            headers[DISALLOWED_LISTENERS_HEADER] = ",".join(excluded)
        try:
            websocket = await self._dial(headers, lambda agent: agent in excluded)
        except RelayDebugError as error:
            if isinstance(error, Rejected) or (isinstance(error, RelayUnreachable) and search.answered):
                self._skip(search, error)
            else:
                search.error = search.error or error
            return
        search.answered = True
        try:
            begun = await self._begin(websocket) if websocket is not None else None
        except RelayDebugError as error:
            self._skip(search, error)
            return
        if begun is not None:
            self._on_seen(begun.agent)
        if begun is None or not begun.is_new:
            search.misses += 1
            return
        self.has_found = True
        search.found += 1
        search.misses = 0

    def _skip(self, search: EndedSearch, error: RelayDebugError) -> None:
        """Count an agent that cannot be used, log it once, and continue: others may be usable."""
        search.unusable = error
        search.misses += 1
        if not self._is_repeated(str(error)):
            logger.warning("searching for other agents, because one on '%s' cannot be used: %s", self._path, error)

    def _was_last_logged(self, text: str) -> bool:
        was_last, self._last_logged = text == self._last_logged, text
        return was_last

    async def dial_agent(self, agent: str) -> WebSocket:
        """Connect to one known agent, to resume its session.

        Raises:
            NoListener: the agent was not found: it has exited, or the relay picked others each time.
            RelayDebugError: any other reason.
        """
        probes = LATE_PROBES
        if self._failed_resumes[agent] < THOROUGH_RESUMES:
            probes = SearchEffort(RESUME_ROUNDS).max_misses(len(self._known()))
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
                f"{probes} connections did not reach this agent; it has exited, or the relay picked other agents",
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

        If the agent was missed before, a search is requested immediately, so that a successor is found as early as the
        agent itself would be. Otherwise it is requested after a delay: the relay may have announced the attempt to a
        listener that was killed, and such an attempt takes 10 s to fail.
        """
        self._request_search(agent)
        while True:
            await asyncio.sleep(SLOW_ATTEMPT)
            self._missed(agent, 1)

    def _request_search(self, agent: str) -> None:
        """Request a search if an agent was missed since it was last reached."""
        if 0 < self._misses[agent] <= MAX_MISSES:
            self._on_missed()

    async def _probe_for(self, agent: str, probes: int) -> WebSocket | None:
        headers = {
            TUNNEL_HEADER: TunnelHeader(self._client_id, agent).encode(),
            ALLOWED_LISTENERS_HEADER: agent,
        }
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
            return await self._dial(headers, lambda other: other != agent)
        except RelayDebugError as error:
            return error

    async def _dial(self, headers: Mapping[str, str], is_excluded: Callable[[str], bool]) -> WebSocket | None:
        """Make one connection; None if the relay picked the wrong agent.

        Args:
            headers: The headers for the relay and the agent.
            is_excluded: Whether a relay that honours the headers would not have picked this agent.
        """
        async with contextlib.AsyncExitStack() as slot:
            if self.at_random:
                await slot.enter_async_context(self._dials)
            try:
                return await self._connect(headers)
            except Rejected as rejected:
                if rejected.status != MISDIRECTED:
                    raise
                agent = refusing_agent(rejected.reason)
                if agent is not None:
                    self._on_seen(agent)
                self.at_random = self.at_random or agent is None or is_excluded(agent)
                if agent is not None and agent not in self._known():
                    self._missed(agent, UNKNOWN_WEIGHT)
                return None


@dataclass
class EndedSearch:
    """The state of one search on one hybrid connection."""

    answered: bool = False
    """True once an agent has answered. The relay then works, and an unanswered probe reached an agent without a
    network."""
    found: int = 0
    """New agents."""
    misses: int = 0
    """Probes since the last new agent."""
    unusable: RelayDebugError | None = None
    """The error of the last agent that could not be used."""
    error: RelayDebugError | None = None
    """The error that ends the search."""


def conclude(
    searches: Sequence[EndedSearch], path: str, *, is_met: bool, has_known: bool, has_found: bool
) -> RelayDebugError | None:
    """Return why the searches of a hybrid connection, or of all those of a family, ended; None if they have succeeded.

    An unusable agent is the reason only if no other agent was ever usable. Otherwise this client's key is correct, and
    waiting for the expected agent helps.

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
        # An existing hybrid connection without agents explains more than a deleted one.
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
    return NoListener(f"there are no other agents on '{path}'")

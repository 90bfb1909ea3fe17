"""Finds agents on a hybrid connection: those that this client has no tunnel with, and one that it had one with.

The relay picks the listener for each connection. One that honours the listener selection headers gives every probe a
new agent, and answers 404 after the last. One that ignores them picks at random; then the agents answer 421 to a client
that they know, or that wants another, and the client tries again, several times at once:

    n agents, all but one known     a try finds the last one with a chance of 1/n
    `rounds` * n tries in vain      there is none; wrong once in e to the power of `rounds` (8: 3,000)

A 421 from an agent that the headers excluded shows that the relay ignores them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from relay_core.errors import NoListener, Rejected, RelayDebugError, RelayUnreachable
from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER, DISALLOWED_LISTENERS_HEADER
from relay_core.net.tasks import TaskSet
from relay_core.net.websocket.handshake import WebSocket
from relay_core.tunnel.headers import MISDIRECTED, TUNNEL_HEADER, TunnelHeader, refusing_agent

__all__ = ["MAX_AGENTS", "Discovery", "Patience"]

MAX_AGENTS = 25
"""Listeners on one hybrid connection, Azure's limit."""
LOOKS_AT_ONCE = 8
"""Tries at the same time for agents that are not known, where the relay picks at random: 8 agents are all found in
about 3 s, and 25 in 10, at Azure's delays."""
RESUMES_AT_ONCE = 4
"""The same for one agent that is known."""
ALL_AT_ONCE = 12
"""Tries at the same time for all purposes: 25 tunnels that are lost together must not flood the relay."""
RESUME_ROUNDS = 3
"""The same for an agent that is known: a failure is followed by the next attempt anyway."""
EAGER_RESUMES = 3
"""Attempts to resume with that many tries each; an agent that is still not found is likely to be gone."""
LATE_TRIES = 2
"""Tries of each later attempt: every few seconds, for as long as the session is kept, and for many dead agents."""
MAX_ODD = 3
"""Agents in a row that refuse or break the handshake, before looking is pointless."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How long to look where the relay picks at random.

    Args:
        rounds: Tries in vain, as a multiple of the agents there may be.
    """

    rounds: int

    def tries(self, known: int) -> int:
        """Return how many tries in vain prove that there are only the known agents."""
        return self.rounds * min(known + 1, MAX_AGENTS)


class Discovery:
    """Dials agents.

    Args:
        connect: Makes one connection with some headers.
        begin: Begins a session on it; returns False if the agent turned out to be known.
        known: Ids of the agents that this client has tunnels with.
        client_id: Names this client to the agents.
        path: Name of the hybrid connection, for messages.
    """

    def __init__(
        self,
        connect: Callable[[Mapping[str, str]], Awaitable[WebSocket]],
        begin: Callable[[WebSocket], Awaitable[bool]],
        known: Callable[[], Collection[str]],
        *,
        client_id: str,
        path: str,
    ) -> None:
        self.at_random = False
        """The relay has been seen to ignore the headers."""
        self._connect = connect
        self._begin = begin
        self._known = known
        self._client_id = client_id
        self._path = path
        self._resumes: Counter[str] = Counter()
        """Attempts to resume in vain, by agent."""
        self._slots = asyncio.Semaphore(ALL_AT_ONCE)
        self._logged_odd = ""

    def __repr__(self) -> str:
        return f"<Discovery {self._path} {'random' if self.at_random else 'selecting'} known={len(self._known())}>"

    async def look(self, wanted: Callable[[], Patience | None]) -> RelayDebugError | None:
        """Find agents until nobody wants more.

        Args:
            wanted: Asked before each try: how patiently to look now, or None to stop.

        Returns:
            Why looking ended before that: NoListener if there are no more agents; or None.
        """
        look = _Look()
        running: set[asyncio.Task[None]] = set()
        async with TaskSet() as tasks:
            while True:
                patience = wanted()
                while patience is not None and self._may_try(look, len(running), patience):
                    running.add(tasks.spawn(self._try(look), name="look for an agent"))
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        if look.ended is not None and not (isinstance(look.ended, NoListener) and self._known()):
            return look.ended
        return None if look.ended is None and wanted() is None else self._nobody(look)

    def _may_try(self, look: _Look, running: int, patience: Patience) -> bool:
        if look.ended is not None or running >= self._looks_at_once(look):
            return False
        known = len(self._known())
        if self.at_random and known >= MAX_AGENTS:
            return False
        return look.odd_in_a_row < MAX_ODD and look.in_vain + running < patience.tries(known)

    def _looks_at_once(self, look: _Look) -> int:
        """Return how many tries may run; where the relay selects, few agents must not cost many probes."""
        return LOOKS_AT_ONCE if self.at_random else min(LOOKS_AT_ONCE, max(1, look.found))

    async def _try(self, look: _Look) -> None:
        headers = {TUNNEL_HEADER: TunnelHeader(self._client_id).encode()}
        excluded = tuple(self._known())
        if excluded:
            headers[DISALLOWED_LISTENERS_HEADER] = ",".join(excluded)
        try:
            websocket = await self._dial(headers, lambda agent: agent in excluded)
        except RelayDebugError as error:
            if isinstance(error, Rejected) or (isinstance(error, RelayUnreachable) and look.answered):
                look.found_odd(error)
            else:
                look.ended = look.ended or error
            return
        look.answered = True
        try:
            is_new = websocket is not None and await self._begin(websocket)
        except RelayDebugError as error:
            look.found_odd(error)
            return
        look.odd_in_a_row = 0
        look.found += is_new
        look.in_vain = 0 if is_new else look.in_vain + 1

    def _nobody(self, look: _Look) -> RelayDebugError:
        """Return what it means that there was nothing more to find."""
        if look.odd is not None:
            if not self._known():
                return look.odd
            if str(look.odd) != self._logged_odd:
                self._logged_odd = str(look.odd)
                logger.warning("an agent on '%s' cannot be used: %s", self._path, look.odd)
        return NoListener(f"there are no other agents on '{self._path}'")

    async def find_again(self, agent: str) -> WebSocket:
        """Connect to one agent, for a resume.

        Raises:
            NoListener: it was not found; it may be gone, or others were picked each time.
            RelayDebugError: any other reason.
        """
        tries = LATE_TRIES
        if self._resumes[agent] < EAGER_RESUMES:
            tries = Patience(RESUME_ROUNDS).tries(len(self._known()))
        websocket = await self._dial_until_met(agent, tries)
        if websocket is None:
            self._resumes[agent] += 1
            raise NoListener(f"{tries} connections did not meet this agent; it has ended, or others were picked")
        self.seen(agent)
        return websocket

    def seen(self, agent: str) -> None:
        """An agent lives: attempts to resume with it are worth something."""
        self._resumes.pop(agent, None)

    async def _dial_until_met(self, agent: str, tries: int) -> WebSocket | None:
        headers = {
            TUNNEL_HEADER: TunnelHeader(self._client_id, agent).encode(),
            ALLOWED_LISTENERS_HEADER: agent,
        }
        running: set[asyncio.Task[WebSocket | RelayDebugError | None]] = set()
        async with TaskSet() as tasks:
            while tries or running:
                while tries and len(running) < (RESUMES_AT_ONCE if self.at_random else 1):
                    tries -= 1
                    running.add(tasks.spawn(self._outcome(headers, agent), name="look for the agent"))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                outcomes = [task.result() for task in done]
                errors = [outcome for outcome in outcomes if isinstance(outcome, RelayDebugError)]
                met = [outcome for outcome in outcomes if outcome and not isinstance(outcome, RelayDebugError)]
                for surplus in met[1:]:
                    surplus.abort()
                if met:
                    return met[0]
                if errors:
                    raise errors[0]
        return None

    async def _outcome(self, headers: Mapping[str, str], agent: str) -> WebSocket | RelayDebugError | None:
        """Return an error instead of raising it: several of these run at the same time."""
        try:
            return await self._dial(headers, lambda other: other != agent)
        except RelayDebugError as error:
            return error

    async def _dial(self, headers: Mapping[str, str], is_excluded: Callable[[str], bool]) -> WebSocket | None:
        """Make one connection; None if the wrong agent was picked.

        Args:
            headers: What the relay and the agent are asked for.
            is_excluded: Whether a relay that honours the headers would not have picked this agent.
        """
        async with contextlib.AsyncExitStack() as slot:
            if self.at_random:
                await slot.enter_async_context(self._slots)
            try:
                return await self._connect(headers)
            except Rejected as rejected:
                if rejected.status != MISDIRECTED:
                    raise
                agent = refusing_agent(rejected.reason)
                self.at_random = self.at_random or agent is None or is_excluded(agent)
                return None


@dataclass
class _Look:
    """One look around."""

    answered: bool = False
    """An agent has answered, so the relay works: a try without an answer met an agent that has lost its network."""
    found: int = 0
    """New agents."""
    in_vain: int = 0
    """Tries since the last that found an agent."""
    odd: RelayDebugError | None = None
    """What was wrong with an agent that could not be used."""
    odd_in_a_row: int = 0
    ended: RelayDebugError | None = None
    """The answer that ends it."""

    def found_odd(self, error: RelayDebugError) -> None:
        """An agent cannot be used; another one may be all right."""
        self.odd = error
        self.odd_in_a_row += 1
        self.in_vain += 1

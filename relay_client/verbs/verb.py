"""What all verbs have in common: the form of requests and answers, the check of arguments, and who performs them."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from relay_client.ui.text import parse_chosen_ports, parse_chosen_ranks
from relay_core.value_parsers import named

if TYPE_CHECKING:
    from relay_client.agents.roster import Roster
    from relay_client.agents.tunnels import Tunnels


LOG_AFTER = 2.0
"""Seconds without an answer until a log line states what is awaited."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """Result of a verb."""

    text: str
    """What the command prints."""
    data: object
    """What the command prints with `--json`."""
    status: int = 0
    """Exit status of the command."""
    error: str = ""
    """What has failed in part."""
    hint: str = ""
    jobs_hint: str = ""
    """How to choose one of several jobs on the command line."""


@dataclass(frozen=True)
class Command:
    """The texts of a command whose arguments are the fields of its verb; a field without a default is positional."""

    summary: str
    description: str
    arguments: Mapping[str, str]
    """The help of each argument; a field that is not listed is none, except `ranks` and `ports`."""
    optional: Collection[str] = ()
    """The fields with a default that are positional, too."""


@dataclass(frozen=True)
class Verb(ABC):
    """A request to the job; the fields of each subclass are its arguments."""

    name: ClassVar[str]
    result: ClassVar[type[Answer]] = Answer
    changes_job: ClassVar[bool] = False
    """Whether it can change what the job does."""
    cancelled: ClassVar[str] = ""
    """What Ctrl-C has done, which is then a failure of the command; "" if Ctrl-C is a usual end."""
    checks: ClassVar[Mapping[str, Callable[[str], object]]] = {"ranks": parse_chosen_ranks, "ports": parse_chosen_ports}
    """For each field with a grammar of its own, the function that raises UsageError if the text is invalid."""
    command: ClassVar[Command]

    @property
    def is_repeated(self) -> bool:
        """Whether a program asks this repeatedly; it relies on the periodic search, and may wait for an answer."""
        return False

    def must_search(self, roster: Roster) -> bool:
        """Return whether to search for agents first, although some have been searched for earlier.

        Args:
            roster: The known agents.
        """
        from relay_client.agents.roster import absent_ranks

        return not len(roster) or (not self.is_repeated and any(one.may_register for one in absent_ranks(roster)))

    @abstractmethod
    async def perform(self, tunnels: Tunnels) -> Answer:
        """Do the work.

        Args:
            tunnels: The client's tunnels, after all agents have been found.

        Raises:
            RelayDebugError: the verb has failed.
        """


def check(request: Verb, option: Callable[[str], str] | None = None) -> None:
    """Check the arguments of a request.

    Args:
        request: The request.
        option: Returns what a front end calls a field, for the error.

    Raises:
        UsageError: an argument is invalid.
    """
    for name in [field.name for field in fields(request) if field.name in request.checks]:
        with named(option(name)) if option is not None else contextlib.nullcontext():
            request.checks[name](getattr(request, name))


class Session:
    """Performs verbs; before the first one, all agents are found.

    A rank that registers later is announced. An agent that starts later is found by another search if ranks of a known
    job are missing, and otherwise by the periodic search.

    Args:
        tunnels: The client's tunnels, already entered.
        waits: Whether to wait while all agents have reached their limit on sessions.
    """

    def __init__(self, tunnels: Tunnels, *, waits: bool = True) -> None:
        self._tunnels = tunnels
        self._waits = waits
        self._has_searched = False

    async def search(self) -> None:
        """Search for agents.

        Raises:
            NoListener: no job was found.
            RelayDebugError: the relay or the credentials are unusable.
        """
        await self._tunnels.discover_all(waits=self._waits)
        self._has_searched = True

    async def perform(self, request: Verb) -> Answer:
        """Return the answer to a request.

        Raises:
            RelayDebugError: the verb has failed; UsageError for an invalid argument.
        """
        from relay_core.net.tasks import TaskSet

        check(request)
        async with TaskSet() as background:
            if not request.is_repeated:
                background.spawn(self._log_wait(request.name), name="log what is awaited")
            if not self._has_searched or request.must_search(self._tunnels.roster):
                await self.search()
            return await request.perform(self._tunnels)

    async def _log_wait(self, name: str) -> None:
        """Log what a request waits for if it takes long, and which tunnels carry no data."""
        import asyncio

        await asyncio.sleep(LOG_AFTER)
        agents = [*self._tunnels.roster]
        outages = [outage.sentence for agent in agents if (outage := self._tunnels.outage(agent.id))]
        awaited = f"{len(agents)} agents" if agents[1:] else agents[0].name if agents else "the relay or an agent"
        logger.warning("%s", "; ".join([f"waiting for the result of '{name}' from {awaited}", *outages[:1]]))

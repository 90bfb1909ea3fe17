"""The members of a session, which are ranks and their child processes, and the ranks that move together."""

from __future__ import annotations

import enum
import ntpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from relay_client.ui.text import format_ranks
from relay_core.dap.messages import Body, Request
from relay_core.value_parsers import expand_ranges, parse_ranges

# The ranks that continue, step and pause together: `all`, `here` or a list of ranks, such as `0,3-5`.
#
# all         every rank
# here        the ranks that are stopped at the same place as the rank that the editor shows
# 0,3-5       these ranks
# bad: 5-3, x, "" (see `relay_core.value_parsers`)

MAX_RANKS = 4096
"""Maximum number of ranks in a list; no job has that many ranks on one hybrid connection."""
_WHAT = "group of ranks"


@dataclass(frozen=True)
class Group:
    """A choice of ranks."""

    ranks: frozenset[int] | None = None
    """The ranks in the list; None for `all` and `here`."""
    is_here: bool = False

    def __str__(self) -> str:
        if self.is_here:
            return "the ranks at the same place"
        return "all ranks" if self.ranks is None else format_ranks(self.ranks)

    @classmethod
    def parse(cls, text: str) -> Group:
        """Parse the text of a choice.

        Raises:
            UsageError: the text does not follow the grammar.
        """
        wanted = text.strip()
        if wanted in {"all", "here"}:
            return cls(is_here=wanted == "here")
        ranges = parse_ranges(wanted, what=_WHAT, example="all, here, 3 or 0,3-5")
        return cls(frozenset(expand_ranges(ranges, what=_WHAT, limit=MAX_RANKS)))


# The members of a session: its ranks, and their child processes. A rank that is restarted becomes a new member.

MAIN_THREAD = "MainThread"
FIRST_THREAD = 1
"""The id that debugpy assigns to the main thread."""


class Phase(enum.Enum):
    """The progress of attaching to a rank."""

    CONNECTING = "connecting"
    CONFIGURING = "configuring"
    """The rank's debugger accepts breakpoints and is waiting for `configurationDone`."""
    ATTACHED = "attached"


@dataclass(frozen=True)
class RankName:
    """The name of a member."""

    label: str
    """`rank 3`, or `rank 3 / process 4711` for a child process."""
    rank: int | None = None
    where: str = ""
    """The label with the node, such as `rank 3 on node-1`; relay-client's lines about the connection contain it."""
    child: int | None = None
    """The process id, if this is a child process of a rank."""

    @property
    def is_rank(self) -> bool:
        """True if this is the process of a rank itself, and not a child of it."""
        return self.label == f"rank {self.rank}"

    def of_child(self, pid: int) -> RankName:
        """Return the name of a child process, or of a child of this child."""
        return RankName(_child(self.label, pid), self.rank, _child(self.where, pid), pid)


def _child(name: str, pid: int) -> str:
    return f"{name.partition(' / ')[0]} / process {pid}"


@dataclass(frozen=True)
class Place:
    """Where a thread is stopped."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{ntpath.basename(self.file)}:{self.line}"


@dataclass
class Stop:
    """A stop of a rank; debugpy stops all threads of a process together."""

    thread: int
    """The rank's id of the thread that caused the stop."""
    body: Body
    """The body of the rank's `stopped` event."""
    hit: list[int] = field(default_factory=list)
    """The session's ids of the breakpoints that the rank has hit."""
    stack: Body | None = None
    """The call stack of that thread, as requested with `STACK` in `stops`, with the session's ids."""
    place: Place | None = None
    is_located: bool = False
    """True once the place is known, or the rank has failed to report it."""
    waiting: list[Request] = field(default_factory=list)
    """Unanswered requests from the editor for this stack."""


@dataclass(eq=False)
class Member:
    """One process, while its connection lasts."""

    number: int
    name: RankName
    phase: Phase = Phase.CONNECTING
    threads: dict[int, str] = field(default_factory=dict)
    """Names of the threads, by the rank's ids."""
    stop: Stop | None = None
    is_pausing: bool = False
    """True if it was asked to pause and has not stopped, for example because it executes C code."""
    shown_stopped: set[int] = field(default_factory=set)
    """The rank's ids of the threads that the editor shows as stopped."""
    has_exit_code: bool = False
    """True if its debugger has reported its exit code."""

    @property
    def order(self) -> tuple[bool, int, str]:
        """Sort key: ranks first, by number."""
        return self.name.rank is None, self.name.rank or 0, self.name.label

    @property
    def main_thread(self) -> int:
        """The rank's id of its main thread."""
        return next((thread for thread, name in self.threads.items() if name == MAIN_THREAD), FIRST_THREAD)

    def thread_name(self, thread: int) -> str:
        """Return the name of a thread: `rank 3 · MainThread`."""
        unknown = MAIN_THREAD if thread == FIRST_THREAD else f"thread {thread}"
        return f"{self.name.label} · {self.threads.get(thread, unknown)}"


class Members:
    """The members of a session."""

    def __init__(self) -> None:
        self.chosen: int | None = None
        """The number of the member that the editor shows."""
        self._members: dict[int, Member] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def add(self, number: int, name: RankName) -> Member:
        """Add a member, and return it."""
        member = Member(number, name)
        ordered = sorted([*self._members.values(), member], key=lambda each: each.order)
        self._members = {each.number: each for each in ordered}
        return member

    def get(self, number: int | None) -> Member | None:
        """Return a member by the number of its connection."""
        return None if number is None else self._members.get(number)

    def remove(self, number: int) -> Member | None:
        """Remove a member, and return it."""
        self.chosen = None if self.chosen == number else self.chosen
        return self._members.pop(number, None)

    @property
    def attached(self) -> list[Member]:
        """The members whose debugger is attached."""
        return [member for member in self if member.phase is Phase.ATTACHED]

    def of(self, group: Group, chosen: Member | None) -> list[Member]:
        """Return the attached members of a group.

        Args:
            group: The group.
            chosen: The member that the editor shows.
        """
        ranks = group.ranks
        if not group.is_here:
            return [member for member in self.attached if ranks is None or member.name.rank in ranks]
        place = chosen.stop.place if chosen is not None and chosen.stop is not None else None
        if place is None:
            return [chosen] if chosen is not None else []
        return [member for member in self.attached if member.stop is not None and member.stop.place == place]

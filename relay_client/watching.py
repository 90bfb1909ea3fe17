"""What is known about a watch in all ranks, from one answer of the verb `watch` to the next, and its texts; no I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from relay_client.compare.groups import label, shared_ranks, value_line
from relay_core.agent_api.evaluation import Value
from relay_core.agent_api.members import Member
from relay_core.agent_api.watch import Hit, Watched
from relay_core.foreign import escape_controls
from relay_core.records import parse
from relay_core.value_parsers import format_ranges

HitOf = tuple[Member, Hit]
"""A hit, and the process that has reported it."""
COLUMNS = ("", "reached", "reported", "skipped", "dropped", "spent", "last value")
RARE = "skipped", "dropped"
"""Columns that are shown only if a rank has another number than 0."""
RANKS_WIDTH = 12
"""Characters for the ranks at first; the column becomes wider with longer lists of ranks."""
LEAST_PERCENT = 0.001


@dataclass(frozen=True)
class WatchedRank(Watched):
    """The state of a watch in the process of a rank, or in a rank without a process."""

    rank: int | None = None
    port: int = 0
    """The logical port."""
    process: str = ""
    """Another one if another process has taken the port."""
    is_silent: bool = False
    """True if the process has not answered, or does not exist."""


@dataclass
class _Rank:
    """What is known about a rank."""

    state: WatchedRank
    """As last reported by its process; `error` is that of the last answer."""
    cursor: int = 0
    """The number of the last hit."""
    reported: int = 0
    last: str = ""
    """The value that was reported last."""

    @property
    def member(self) -> Member:
        return Member(self.state.port, self.state.rank)

    def received(self, state: WatchedRank) -> list[Hit]:
        """Take the next answer, and return the hits that are new."""
        if state.is_silent:
            self.state = replace(self.state, error=state.error, is_silent=True)
            return []
        if state.process != self.state.process:
            self.cursor = 0
        new = [hit for hit in state.hits if hit.number > self.cursor]
        self.cursor = max([self.cursor, *(hit.number for hit in new)])
        self.state = replace(state, hits=())
        return new

    def as_object(self) -> dict[str, object]:
        """Return the state, and what was reported, as a JSON object."""
        found = asdict(self.state)
        del found["hits"]
        return {**found, "reported": self.reported, "last": self.last}


class Watching:
    """Takes the answers, and returns what is new in them.

    Args:
        limit: The number of hits, in all ranks together, that are reported; 0 for no limit.
    """

    def __init__(self, limit: int = 0) -> None:
        self.reported = 0
        self._limit = limit
        self._ranks: dict[int, _Rank] = {}
        """By logical port."""
        self._noted: set[tuple[int, str]] = set()
        self._widths = RANKS_WIDTH, 0
        self.has_processes = False
        """Whether the last answer was about any rank."""

    @property
    def cursors(self) -> dict[int, int]:
        """The number of the last hit of each process, by logical port."""
        return {port: rank.cursor for port, rank in self._ranks.items()}

    @property
    def ranks(self) -> str:
        """The ranks that watch the line, or will once they have loaded the file; "" if there are none."""
        states = [(rank.state, rank.member) for rank in self._ranks.values() if not rank.state.error]
        return self._label(member for state, member in states if state.place or not state.note)

    @property
    def end(self) -> str:
        """Why the watch is over; "" if it is not."""
        if self._limit and self.reported == self._limit:
            return f"the watch has ended after {hits_text(self._limit)}"
        states = [rank.state for rank in self._ranks.values()]
        if not all(state.ended or (state.error and not state.is_silent) for state in states):
            return ""
        ends = [f"the watch has ended {escape_controls(state.ended)}" for state in states if state.ended]
        return next(iter(ends), f"no rank can watch the line: {escape_controls(states[0].error)}" if states else "")

    def received(self, answer: Mapping[str, Any]) -> list[HitOf]:
        """Take the `data` of an answer, and return its new hits in the order of their times."""
        self.has_processes = bool(answer["ranks"])
        new: list[tuple[Hit, _Rank]] = []
        for entry in answer["ranks"]:
            state = parse(WatchedRank, entry)
            rank = self._ranks.setdefault(state.port, _Rank(replace(state, hits=())))
            new += [(hit, rank) for hit in rank.received(state)]
        new.sort(key=lambda found: found[0].time)
        new = new[: self._limit - self.reported] if self._limit else new
        for hit, rank in new:
            rank.reported += 1
            rank.last = _value_of(hit)
        self.reported += len(new)
        return [(rank.member, hit) for hit, rank in new]

    def lines(self, hits: Iterable[HitOf]) -> list[str]:
        """Return hits as lines; ranks that report the same value, before one of them reports again, share a line.

        Their counts may differ, because each rank counts from the moment at which it began to watch.
        """
        lines: list[str] = []
        groups: dict[object, list[HitOf]] = {}
        seen: set[Member] = set()
        for member, hit in hits:
            if member in seen:
                lines += map(self._line, groups.values())
                groups, seen = {}, set()
            seen.add(member)
            groups.setdefault((hit.text, hit.error, hit.thread), []).append((member, hit))
        return [*lines, *map(self._line, groups.values())]

    def _line(self, group: Sequence[HitOf]) -> str:
        hit, ranks = group[0][1], self._label(member for member, _ in group)
        count = f"#{format_ranges(sorted({each.reached for _, each in group}))}"
        clock = time.strftime("%H:%M:%S", time.localtime(hit.time))
        width, digits = self._widths = max(self._widths[0], len(ranks)), max(self._widths[1], len(count))
        thread = f"  (thread {escape_controls(hit.thread)})" if hit.thread else ""
        return f"{clock}  {ranks:{width}}  {count:{digits}}  {_value_of(hit)}{thread}".rstrip()

    def notes(self) -> list[str]:
        """Return what the user should know about some ranks, each sentence once for each rank."""
        found: dict[str, list[Member]] = {}
        for rank in self._ranks.values():
            for sentence in _sentences(rank.state):
                if (rank.state.port, sentence) not in self._noted:
                    self._noted.add((rank.state.port, sentence))
                    found.setdefault(sentence, []).append(rank.member)
        return [f"{self._label(members)}: {escape_controls(sentence)}" for sentence, members in found.items()]

    def why_no_hits(self, place: str, *, is_conditional: bool, every: int) -> str:
        """Return why there may be no hits yet, with a hint."""
        reached = sum(rank.state.reached for rank in self._ranks.values())
        if not reached:
            return f"no rank has reached {place} yet. hint: 'relay-client stacks' shows where the ranks are"
        reasons = [f"only 1 of {every} is reported"] if every > 1 else []
        reasons += ["the condition has not been true"] if is_conditional else []
        times = f"{reached} times" if reached > 1 else "once"
        return ": ".join(filter(None, (f"no hit yet; {place} was reached {times}", " and ".join(reasons))))

    def table(self, seconds: float) -> list[str]:
        """Return the lines of a table of the ranks, and the cost of the watch in the rank in which it was highest.

        Args:
            seconds: How long the watch has lasted.
        """
        rows = [self._row(rank) for rank in self._ranks.values()]
        shown = [
            index for index, name in enumerate(COLUMNS) if name not in RARE or any(row[index] != "0" for row in rows)
        ]
        table = [[line[column] for column in shown] for line in (COLUMNS, *rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(shown))]
        worst = max(self._ranks.values(), key=lambda rank: rank.state.spent)
        percent = 100 * worst.state.spent / max(seconds, 0.001)
        share = f"{percent:.3f}" if percent >= LEAST_PERCENT else f"less than {LEAST_PERCENT}"
        cost = f"cost: {_milliseconds(worst.state.spent)} of {seconds:.0f} s in {self._label([worst.member])}"
        aligned = [_aligned(line, widths) for line in table]
        return [*aligned, f"{cost} ({share} %)"]

    def _row(self, rank: _Rank) -> tuple[str, ...]:
        state = rank.state
        counts = state.reached, rank.reported, state.skipped, state.missed
        return self._label([rank.member]), *map(str, counts), _milliseconds(state.spent), rank.last

    def as_objects(self) -> list[dict[str, object]]:
        """Return the ranks as JSON objects."""
        return [rank.as_object() for rank in self._ranks.values()]

    def _label(self, members: Iterable[Member]) -> str:
        known = Value(members=tuple(rank.member for rank in self._ranks.values()))
        return label(list(members), shared_ranks([known]))


def hits_text(number: int) -> str:
    """Return a number of hits as text."""
    return f"{number} hit{'s' if number > 1 else ''}"


def hit_as_object(member: Member, hit: Hit) -> dict[str, object]:
    """Return a hit as a JSON object."""
    return {"event": "hit", "rank": member.rank, "port": member.port, **asdict(hit)}


def _sentences(state: WatchedRank) -> Iterator[str]:
    if state.error:
        yield state.error
        return
    if not (state.place or state.note):
        yield "the file is not loaded yet; the watch begins once it is"
    if state.note:
        yield state.note
    if state.missed:
        yield "hits are dropped, because the line is reached faster than they are read"
    if state.skipped:
        yield "the line is reached too often to evaluate the expression each time"
    if state.ended:
        yield f"the watch has ended {state.ended}"


def _value_of(hit: Hit) -> str:
    return f"no value: {escape_controls(hit.error)}" if hit.error else value_line(hit.text)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells of a line; numbers are at the right, the first and the last column at the left."""
    first, *numbers, last = line
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=False))]
    return "  ".join([*cells, last]).rstrip()

"""What is known about a watch in all ranks, from one answer of the verb `watch` to the next, and its texts; no I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

from relay_client.compare.groups import label, shared_ranks, value_line
from relay_client.stacks import frame_lines, frames_as_objects
from relay_core.agent_api.evaluation import Value
from relay_core.agent_api.members import Member
from relay_core.agent_api.watch import Hit, Watched
from relay_core.records import parse
from relay_core.value_parsers import format_ranges

HitOf = tuple[Member, Hit]
"""A hit, and the process that has reported it."""
RANKS_WIDTH = 12
"""Characters for the ranks at first; the column becomes wider with longer lists of ranks."""
MAX_LAST = 80
"""Maximum number of characters of a value in the table."""
TENTHS_BELOW = 10
"""Seconds below which a duration has one decimal."""


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
    lost: str = ""
    """Why it did not answer when the notes were last read; "" if it did."""

    @property
    def member(self) -> Member:
        return Member(self.state.port, self.state.rank)

    def received(self, state: WatchedRank) -> list[Hit]:
        """Take the next answer, and return the hits that are new."""
        if state.is_silent:
            self.state = replace(self.state, error=state.error, is_silent=True)
            return []
        last = max((hit.number for hit in state.hits), default=self.cursor)
        if state.process != self.state.process or last < self.cursor:  # its clock was set back
            self.cursor = 0
        new = [hit for hit in state.hits if hit.number > self.cursor]
        self.cursor = max(self.cursor, last)
        self.state = replace(state, hits=())
        return new


class Watching:
    """Takes the answers, and returns what is new in them.

    Args:
        line: FILE:LINE; "" if steps of optimizers are watched.
        limit: The number of hits, in all ranks together, after which the watch is over; 0 for no limit.
        is_holding: Whether each hit holds its rank, so that hits beyond the limit are reported, too.
        doubt: What follows the note that the file is not loaded yet; "" for nothing.
    """

    def __init__(self, line: str, limit: int = 0, doubt: str = "", *, is_holding: bool = False) -> None:
        self.reported = 0
        self._has_value = False
        self._has_line = bool(line)
        self.what = line or "the gradients"
        """What is watched."""
        self._not_loaded = f"the file is not loaded yet; the watch begins once it is{doubt}"
        if not line:
            self._not_loaded = "torch is not loaded yet; the watch begins once it is"
        self._limit = limit
        self._is_cut = bool(limit) and not is_holding
        """Whether hits beyond the limit are left out."""
        self._ranks: dict[int, _Rank] = {}
        """By logical port."""
        self._processes = 0
        """How many processes there are; some may not have answered yet."""
        self._noted: set[tuple[int, str]] = set()
        self._widths = RANKS_WIDTH, 0

    @property
    def has_value(self) -> bool:
        """Whether a hit had a value, or was to be counted only."""
        return self._has_value

    @property
    def changes(self) -> dict[str, Any]:
        """The fields in which the next request differs from the first one, besides the cursors."""
        return {}

    @property
    def active(self) -> dict[Member, bool]:
        """The processes that answer and watch the place, each with whether its watch has ended."""
        states = [(rank.state, rank.member) for rank in self._ranks.values()]
        active = ((state, member) for state, member in states if state.place and not (state.is_silent or state.error))
        return {member: bool(state.ended) for state, member in active}

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
        if self._limit and self.reported >= self._limit:
            return f"the watch has ended (--hits {self._limit})"
        states = [rank.state for rank in self._ranks.values()]
        reasons = [state.ended or ("" if state.is_silent else state.error) for state in states]
        return f"the watch has ended in all ranks: {value_line(reasons[0])}" if all(reasons) else ""

    def received(self, answer: Mapping[str, Any]) -> list[HitOf]:
        """Take the `data` of an answer, and return its new hits in the order of their times."""
        new: list[tuple[Hit, _Rank]] = []
        self._processes = answer.get("processes", 0)
        for entry in answer["ranks"]:
            state = parse(WatchedRank, entry)
            rank = self._ranks.setdefault(state.port, _Rank(replace(state, hits=())))
            new += [(hit, rank) for hit in rank.received(state)]
        new.sort(key=lambda found: found[0].time)
        new = new[: self._limit - self.reported] if self._is_cut else new
        for hit, rank in new:
            rank.reported += 1
            rank.last = _value_of(hit)
            self._has_value |= not hit.error
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
                lines += chain.from_iterable(map(self._lines, groups.values()))
                groups, seen = {}, set()
            seen.add(member)
            groups.setdefault((hit.text, hit.error, hit.thread, str(hit.frames)), []).append((member, hit))
        return [*lines, *chain.from_iterable(map(self._lines, groups.values()))]

    def objects(self, hits: Iterable[HitOf]) -> list[dict[str, object]]:
        """Return hits as JSON objects."""
        return [hit_as_object(*hit) for hit in hits]

    def _lines(self, group: Sequence[HitOf]) -> list[str]:
        hit, ranks = group[0][1], self._label(member for member, _ in group)
        count = f"#{format_ranges(sorted({each.reached for _, each in group}))}"
        clock = time.strftime("%H:%M:%S", time.localtime(hit.time))
        width, digits = self._widths = max(self._widths[0], len(ranks)), max(self._widths[1], len(count))
        thread = f"  (thread {value_line(hit.thread)})" if hit.thread else ""
        line = f"{clock}  {ranks:{width}}  {count:{digits}}  {_value_of(hit)}{thread}".rstrip()
        return [line, *(value_line(text) for text, _ in frame_lines(hit.frames, with_locals=True))]

    def notes(self) -> list[str]:
        """Return what the user should know about some ranks, each sentence once for each rank."""
        found: dict[str, list[Member]] = {}
        for rank in self._ranks.values():
            lost = rank.state.error if rank.state.is_silent and rank.state.place else ""
            if rank.lost and not lost:
                self._noted.discard((rank.state.port, rank.lost))
                found.setdefault("answering again", []).append(rank.member)
            rank.lost = lost
            for sentence in _sentences(rank.state, self._not_loaded, has_line=self._has_line):
                if (rank.state.port, sentence) not in self._noted:
                    known = [known for port, known in self._noted if port == rank.state.port]
                    new = next(
                        (sentence.removeprefix(f"{each}; ") for each in known if f"{each}; " in sentence), sentence
                    )
                    self._noted.add((rank.state.port, sentence))
                    found.setdefault(new, []).append(rank.member)
        return [f"{self._label(members)}: {value_line(sentence)}" for sentence, members in found.items()]

    def holding(self, hits: Iterable[HitOf]) -> list[str]:
        """Return how to debug the ranks that wait for a debugger since these hits."""
        held = [member for member, hit in hits if not hit.error]
        which = {member: f"--port {member.port}" if member.rank is None else f"{member.rank}" for member in held}
        return [
            f"{self._label([member])}: waiting for a debugger: 'relay-client pdb {which[member]}', or F5 in the editor"
            for member in which
        ]

    def why_no_hits(self, *, has_condition: bool) -> str:
        """Return why there may be no hits yet, with a hint."""
        states = [rank.state for rank in self._ranks.values()]
        what = ", ".join(sorted({state.place for state in states if state.place})) or self.what
        if reached := sum(state.reached for state in states):
            skipped = sum(state.skipped for state in states)
            why = "the condition has not been true" if has_condition else "no value has arrived"
            rarely = f"; it was not evaluated {skipped}x" if skipped else ""
            if not self._has_line:
                return f"no hit yet: all gradients were finite in {reached} optimizer steps{rarely}"
            return f"no hit yet: the ranks have reached {what} {reached}x, but {why}{rarely}"
        known = f"{what} has not been reached in any call that is watched"
        known = known if self._has_line else "no optimizer has taken a step"
        return f"no hit yet: {known}. hint: 'relay-client stacks' shows where the ranks are"

    def table(self, seconds: float) -> list[str]:
        """Return the lines of a table of the ranks that have answered, and the highest cost of the watch in a rank.

        Args:
            seconds: How long the watch has lasted.
        """
        rows: list[Sequence[str]] = [("", "reached", "reported", "skipped", "dropped", "spent", "last value")]
        for rank in self._ranks.values():
            state = rank.state
            if state.is_silent and not state.place:  # for example, no process has ever had this rank
                continue
            numbers = map(str, (state.reached, rank.reported, state.skipped, state.missed))
            last = rank.last if len(rank.last) <= MAX_LAST else f"{rank.last[:MAX_LAST]}..."
            rows.append((self._label([rank.member]), *numbers, f"{1000 * state.spent:.1f} ms", last))
        width, *widths = (max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1])
        lines = [
            f"{first:{width}}{''.join(f'{each:>{max(8, size) + 2}}' for each, size in zip(rest, widths, strict=True))}"
            f"  {last}".rstrip()
            for first, *rest, last in rows
        ]
        worst = max(self._ranks.values(), key=lambda rank: rank.state.spent)
        time_spent = f"{seconds:.{int(seconds < TENTHS_BELOW)}f} s"
        spent, percent = 1000 * worst.state.spent, 100 * worst.state.spent / max(seconds, 0.001)
        cost = f"cost: {spent:.1f} ms of {time_spent} in {self._label([worst.member])} ({percent:.3f} %)"
        return [*lines, cost]

    def as_objects(self) -> list[dict[str, object]]:
        """Return the ranks as JSON objects."""
        known = self._ranks.values()
        return [{**asdict(rank.state), "hits": rank.reported, "last": rank.last} for rank in known]

    def _label(self, members: Iterable[Member]) -> str:
        known = Value(members=tuple(rank.member for rank in self._ranks.values()))
        return label(list(members), shared_ranks([known]))


def hit_as_object(member: Member, hit: Hit) -> dict[str, object]:
    """Return a hit as a JSON object."""
    known = {"event": "hit", "rank": member.rank, "port": member.port, **asdict(hit)}
    del known["compared"]  # what a comparison shows is not one rank's
    return {**known, "frames": frames_as_objects(hit.frames)}


def _sentences(state: WatchedRank, not_loaded: str, *, has_line: bool) -> Iterator[str]:
    if state.error:
        yield state.error
        return
    if not (state.place or state.note):
        yield not_loaded
    if state.note:
        yield state.note
    if has_line and (state.missed or state.skipped):  # a process itself reports skipped steps
        yield "the line is reached too often to report each value; the table at the end has the numbers"
    if state.ended:
        yield f"the watch has ended {state.ended}"


def _value_of(hit: Hit) -> str:
    return value_line(f"no value: {hit.error}" if hit.error else hit.text)

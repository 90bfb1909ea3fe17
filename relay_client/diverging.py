"""Compares the checksums that ranks report before the same steps of their optimizers, until they differ; no I/O.

A step is compared once all ranks that hold the same value have reported it. If they differ, the whole value is
requested again in the next steps. Only if it differs there, too, the ranks differ, because the numbers of steps may
repeat, as after a restart. The search of `diff` then finds the element in further steps: the client requests ever
smaller parts of the value, and each step answers one request, because the ranks never stop. An element may be equal
again for a while, by rounding; then the search begins again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay_client.compare.groups import as_objects, hint_about_jobs, label, odd_ones_first, show_values
from relay_client.verbs.watch import DIVERGENCE, GRADIENTS, HOLD, Watch
from relay_client.watching import HitOf, Watching, hit_as_object
from relay_core.agent_api.evaluation import Difference, Selection, Value
from relay_core.agent_api.members import Member
from relay_core.agent_api.watch import Compared
from relay_core.difference_search import Search
from relay_core.foreign import escape_controls
from relay_core.records import encode, parse

MAX_PENDING = 10_000
"""Maximum number of values in steps that some of the ranks have not reported."""
MAX_DONE = 1000
"""Maximum number of compared steps whose ranks are kept."""
MAX_TRIES = 100
"""Maximum number of times that a part is equal again before the search ends."""


@dataclass(frozen=True)
class Step:
    """A step that was compared."""

    time: float
    """As in `Hit`."""
    text: str
    groups: Sequence[Value]
    """The ranks with equal values, outliers first."""
    differences: Mapping[Value, Difference]
    """Where a group differs from the last one; empty until the search has ended."""


class Diverging(Watching):
    """Takes the answers of a watch that compares ranks.

    Args:
        expression: What is compared.
    """

    def __init__(self, expression: str) -> None:
        super().__init__("")
        self.what = f"'{expression}' before optimizer steps"
        self._pending: dict[tuple[str, str], dict[Member, Value]] = {}
        """The values in steps that not all ranks have reported, by the step and the ranks that hold the same value."""
        self._done: dict[tuple[str, str], set[Member]] = {}
        """The ranks in the last steps that were compared; a rank that did not answer meanwhile may report one later."""
        self._holders: dict[Member, str] = {}
        """The ranks that hold the same value as this one."""
        self._suspected = ""
        """The ranks that should hold the same, and differed in one step, which another step has to confirm."""
        self._groups: Sequence[Value] = ()
        """The groups in that step; the search compares the first group with the last one."""
        self._search: Search | None = None
        """None also if it has to begin again."""
        self._selection: Selection | None = None
        """What is requested; None for the whole value at each step that is due."""
        self._tries = 0
        self._difference: Difference | None = None
        self._sentences: list[str] = []
        """What `notes` returns next."""

    @property
    def has_value(self) -> bool:
        """Whether a difference was found."""
        return bool(self._groups)

    @property
    def end(self) -> str:
        """Why the watch is over; "" if it is not."""
        return "the watch has ended: the ranks differ" if self._difference else super().end

    @property
    def changes(self) -> dict[str, Any]:
        """The fields in which the next request differs."""
        return {"selection": self._selection}

    def lines(self, hits: Iterable[HitOf]) -> list[str]:
        """Return the steps that can be compared as lines, and the errors of expressions."""
        lines, failed = [], []
        for found in self._compared(hits):
            if isinstance(found, Step):
                clock = time.strftime("%H:%M:%S", time.localtime(found.time))
                groups = show_values(found.groups, found.differences).splitlines()
                lines += [f"{clock}  {found.text}: {group}" for group in groups]
            else:
                failed.append(found)
        return [*lines, *super().lines(failed)]

    def objects(self, hits: Iterable[HitOf]) -> list[dict[str, object]]:
        """Return the same as JSON objects."""
        objects: list[dict[str, object]] = []
        for found in self._compared(hits):
            if isinstance(found, Step):
                groups = as_objects(found.groups, found.differences)
                objects.append({"event": "compared", "step": found.text, "time": found.time, "groups": groups})
            else:
                objects.append(hit_as_object(*found))
        return objects

    def notes(self) -> list[str]:
        """Return what the user should know about some ranks, each sentence once for each rank."""
        sentences, self._sentences = self._sentences, []
        return [*super().notes(), *sentences]

    def why_no_hits(self, *, has_condition: bool) -> str:  # noqa: ARG002 - a comparison has none
        """Return why there may be no hits yet, with a hint."""
        return "nothing to compare yet: the ranks have reported no step that is due and can be compared"

    def _compared(self, hits: Iterable[HitOf]) -> Iterator[Step | HitOf]:
        """Yield the steps that all ranks have reported, and the hits without checksums."""
        active = self.active
        if hint := hint_about_jobs([Value(tuple(active))]):
            self._note(hint)
            return
        if self._suspected not in {"", *(self._holders.get(member) for member in active)}:
            self._confirm("")  # its ranks hold something else since a restart
        for member, hit in hits:
            if hit.compared is None:
                yield member, hit
                continue
            found = parse(Compared, encode(hit.compared), escape_controls)  # each of its texts is part of a line
            if self._difference or found.selection != (self._selection or Selection()):  # before the last request
                continue
            key = hit.text, found.ranks
            self._holders[member] = found.ranks
            if member not in self._done.get(key, {member}):
                continue
            self._done.pop(key, None)  # the number of the step is repeated
            step = self._pending.setdefault(key, {})
            checksums = {name: getattr(found.value, name) for name in ("digest", "leaves", "parts", "leaf", "sharded")}
            step[member] = Value((member,), **checksums)
            if len(self._ranks) >= self._processes and self._expected(found.ranks, step) <= step.keys():
                self._leave_out(key)
                if groups := self._search_on(step) if self._groups else self._compare(step, found.ranks):
                    differences = {groups[0]: self._difference} if self._difference else {}
                    yield Step(hit.time, escape_controls(hit.text), groups, differences)
            elif sum(map(len, self._pending.values())) > MAX_PENDING:
                del self._pending[next(iter(self._pending))]

    def _expected(self, ranks: str, step: Mapping[Member, Value]) -> set[Member]:
        """Return the processes whose value is needed to compare a step of ranks that hold the same value."""
        if self._groups:
            return {member for member in self._pair() if member is not None}
        able = {member for member, has_ended in self.active.items() if not has_ended or member in step}
        return {member for member in able if self._holders.get(member, ranks) == ranks}

    def _pair(self) -> list[Member | None]:
        """Return the first process of the groups that the search compares; None if all of them have ended."""
        active = self.active
        ends = (self._groups[index].members for index in (0, -1))
        return [next((member for member in members if not active.get(member, True)), None) for members in ends]

    def _compare(self, step: Mapping[Member, Value], ranks: str) -> Sequence[Value]:
        """Return the groups of equal values, if they are to be shown: a difference only if it is confirmed."""
        groups = odd_ones_first(step.values())
        if self._suspected not in {"", ranks}:
            return ()
        if len(groups) == 1 and self._suspected:
            self._note("a difference in one step was not confirmed by the next one")
            self._confirm("")
        elif len(groups) > 1 and not self._suspected:
            self._confirm(ranks, Selection(0, max(value.leaves for value in groups)))
            return ()
        elif len(groups) > 1:
            self._note("searching in the next steps for the first element that differs")
            self._groups = groups
            self._begin_search(groups[0], groups[-1])
        return groups

    def _confirm(self, ranks: str, selection: Selection | None = None) -> None:
        """Request the whole value in each step, because these ranks may differ; for "", only in steps that are due."""
        self._suspected = ranks
        self._request(selection)

    def _search_on(self, step: Mapping[Member, Value]) -> Sequence[Value]:
        """Take the values of a part; return the groups if the search has ended."""
        odd, usual = (step.get(member) if member else None for member in self._pair())
        if odd is None or usual is None:
            self._difference = Difference(note="all ranks with one of the values have ended")
        elif odd.digest == usual.digest and odd.leaves == usual.leaves and self._tries < MAX_TRIES:
            self._tries += 1
            self._search = None
            self._request(Selection(0, odd.leaves))
        elif self._search is None:
            self._begin_search(odd, usual)
        else:
            self._search.received(odd, usual)
            self._follow(self._search)
        return self._groups if self._difference else ()

    def _begin_search(self, odd: Value, usual: Value) -> None:
        self._search = Search(odd, usual)
        self._follow(self._search)

    def _follow(self, search: Search) -> None:
        self._difference = search.difference
        self._request(search.next())

    def _request(self, selection: Selection | None) -> None:
        if selection != self._selection:
            self._selection = selection
            self._pending.clear()

    def _note(self, sentence: str, key: str = "") -> None:
        """Add a sentence, once."""
        if (0, key or sentence) not in self._noted:
            self._noted.add((0, key or sentence))
            self._sentences.append(sentence)

    def _leave_out(self, key: tuple[str, str]) -> None:
        """Forget a step, which all ranks have reported, and earlier ones, which some of them have not."""
        current = self._pending[key]
        self._done[key] = {*current}
        if len(self._done) > MAX_DONE:
            del self._done[next(iter(self._done))]
        for earlier in [*itertools.takewhile(lambda each: each != key, self._pending)]:
            if earlier[1] == key[1]:
                missing = current.keys() - self._pending.pop(earlier).keys()
                text = f"{label(list(missing))} reported a later step, but not {escape_controls(earlier[0])}"
                if missing and self._selection is None:
                    self._note(f"not compared: {text}", key="not compared")
        del self._pending[key]


def watching_of(request: Watch, doubt: str = "") -> Watching:
    """Return what takes the answers of a watch; the doubt is as of `Watching`."""
    if request.place == DIVERGENCE:
        return Diverging(request.expression)
    line, is_holding = "" if request.place == GRADIENTS else request.place, request.then == HOLD
    return Watching(line, request.hits, doubt, is_holding=is_holding)

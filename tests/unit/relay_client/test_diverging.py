"""Facts about the comparison of the checksums that ranks report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relay_client.diverging import MAX_STEPS, MAX_TRIES, SEARCHING, Diverging, watching_of
from relay_client.verbs.watch import Watch
from relay_client.watching import Watching
from relay_core.agent_api.evaluation import Leaf, Selection, Value
from relay_core.agent_api.watch import Compared, Hit
from relay_core.records import encode

WHOLE = Selection()
PARTS = {"leaves": 2, "parts": ("aaaaaa", "bbbbbb")}


def value(digest: str, **fields: Any) -> Value:
    return Value(digest=digest, **{**PARTS, **fields})


class Ranks:
    """Ranks that report, and the comparison that takes their answers.

    Args:
        ranks: How many there are.
        silent: Ranks that never answer.
    """

    def __init__(self, ranks: int = 3, *, silent: tuple[int, ...] = ()) -> None:
        self.watching = Diverging("model")
        self._number = 0
        self._all = [rank for rank in range(ranks) if rank not in silent]
        self._processes = ranks

    def report(self, step: str, *values: Value | str, selection: Selection = WHOLE, ranks: str = "all") -> list[str]:
        """Let ranks report a value, or an error, at a step; return the lines without their times."""
        self._number += 1
        entries = []
        for rank in self._all:
            found = values[rank] if rank < len(values) else None
            hits = []
            if isinstance(found, Value):
                compared = Compared(found, selection, ranks)
                hits = [Hit(self._number, self._number, 1e9, step, compared=compared)]
            elif found:
                hits = [Hit(self._number, self._number, 1e9, step, found)]
            state = {"rank": rank, "port": 5678 + rank, "process": "a 1", "place": "optimizer steps"}
            entries.append({**state, "hits": [encode(hit) for hit in hits]})
        new = self.watching.received({"ranks": entries, "processes": self._processes})
        return [line[10:] for line in self.watching.lines(new)]


def test_equal_values() -> None:
    """A step is one line once all ranks have reported it, in whatever order their answers arrive."""
    ranks = Ranks()
    assert [] == ranks.report("step 1", value("11"), value("11"))
    assert ["step 1: ranks 0-2  equal, checksum 11 (2 tensors and values)"] == ranks.report(
        "step 1", "", "", value("11")
    )
    assert ("", False, {"selection": None}) == (
        ranks.watching.end,
        ranks.watching.has_value,
        ranks.watching.changes,
    )


def test_search_for_the_element() -> None:
    """If ranks differ, ever smaller parts are requested in the next steps, until the element is found."""
    ranks = Ranks()
    other = value("22", parts=("aaaaaa", "cccccc"))
    lines = ranks.report("step 1", value("11"), other, value("11"))
    assert [
        "step 1: rank 1     differs, checksum 22 (2 tensors and values)",
        "step 1: ranks 0,2  reference value, checksum 11 (2 tensors and values)",
    ] == lines
    assert [SEARCHING] == ranks.watching.notes()
    second = Selection(1, 2)
    assert second == ranks.watching.changes["selection"]
    assert [] == ranks.report("step 2", value("11"), other, value("11"))  # asked before
    leaf = Leaf("fc.weight", "[2] float32", 2)
    assert [] == ranks.report(
        "step 3",
        value("3", leaf=leaf),
        replace(other, digest="4", leaf=leaf, parts=("cccccc", "bbbbbb")),
        value("3", leaf=leaf),
        selection=second,
    )
    elements = ranks.watching.changes["selection"]
    assert Selection(1, 2, (0, 1)) == elements
    one, two = (replace(leaf, shown=(text,)) for text in ("0.1", "0.2"))
    [odd, usual] = ranks.report(
        "step 4", value("5", leaf=one), value("6", leaf=two), value("5", leaf=one), selection=elements
    )
    assert "step 4: rank 1     first differs at 'fc.weight' [2] float32, element 0: 0.2 instead of 0.1" == odd
    assert "step 4: ranks 0,2  reference value, checksum 11 (2 tensors and values)" == usual
    assert ("the watch has ended: the ranks differ", True) == (ranks.watching.end, ranks.watching.has_value)
    assert [] == ranks.report("step 5", value("11"), other, value("11"))


def test_part_that_is_equal_again() -> None:
    """The search begins again with the whole value, in each step, and ends if that happens all the time."""
    ranks = Ranks(2)
    ranks.report("step 0", value("11"), value("22", parts=("aaaaaa", "cccccc")))
    assert [] == ranks.report("step 1", value("3"), value("3"), selection=Selection(1, 2))
    assert Selection(0, 2) == ranks.watching.changes["selection"]
    ranks.report("step 2", value("4"), value("5", parts=("cccccc", "bbbbbb")), selection=Selection(0, 2))
    assert Selection(0, 1) == ranks.watching.changes["selection"]
    for number in range(MAX_TRIES):
        selection = ranks.watching.changes["selection"]
        lines = ranks.report(f"step {number + 3}", value("4"), value("4"), selection=selection)
    assert "rank 0  differs at the value: the values keep changing" in lines[0]
    assert "the watch has ended: the ranks differ" == ranks.watching.end


def test_replica_groups() -> None:
    """Only ranks that hold the same part are compared with each other."""
    ranks = Ranks(4)
    assert [] == ranks.report("step 1", value("11"), "", value("11"), ranks="0,2")[1:]
    [line] = ranks.report("step 1", "", value("22"), "", value("22"), ranks="1,3")
    assert "step 1: ranks 1,3  equal, checksum 22 (2 tensors and values)" == line
    [line] = ranks.report("step 2", value("12"), "", value("12"), ranks="0,2")
    assert "step 2: ranks 0,2  equal, checksum 12 (2 tensors and values)" == line


def test_rank_that_has_not_answered_yet() -> None:
    """No step is compared before all ranks have answered once."""
    ranks = Ranks(3, silent=(2,))
    assert [] == ranks.report("step 1", value("11"), value("11"))


def test_step_that_a_rank_does_not_report() -> None:
    """It is left out, and named, once a later step is compared, or if there are many."""
    ranks = Ranks()
    ranks.report("step 1", value("11"), value("11"))
    ranks.report("step 2", value("11"), value("11"), value("11"))
    assert ["not compared step 1: rank 2 did not report it"] == ranks.watching.notes()
    assert [] == ranks.watching.notes()
    for number in range(MAX_STEPS + 1):
        ranks.report(f"step {number + 3}", value("11"), value("11"))
    [note] = ranks.watching.notes()
    assert note.startswith("not compared step ")


def test_two_optimizers_with_the_same_count() -> None:
    """A rank that reports the same step again has begun the one of another optimizer."""
    ranks = Ranks(2)
    ranks.report("step 1", value("11"))
    ranks.report("step 1", value("12"))
    assert ["step 1: ranks 0-1  equal, checksum 12 (2 tensors and values)"] == ranks.report("step 1", "", value("12"))


def test_expression_that_fails() -> None:
    """Its exception is shown."""
    assert ["ranks 0-2     #1  no value: NameError: no"] == Ranks().report("step 1", *["NameError: no"] * 3)


def test_texts_of_a_job() -> None:
    """What a job has put into its texts is a part of a line, and what only an agent may say is left out."""
    ranks = Ranks(2)
    forged = Leaf("w\nforged: 1", "d\nforged: 2")
    lines = ranks.report("s\nforged: 3", value("1", leaf=forged), value("2", leaf=forged, error="no", text="no"))
    assert [] == [line for line in "\n".join(lines).splitlines() if line.startswith("forged")]
    assert not any("no value" in line for line in lines)


@pytest.mark.parametrize(("place", "kind"), [("diverge", Diverging), ("nan", Watching), ("train.py:8", Watching)])
def test_kind_of_watch(place: str, kind: type[Watching]) -> None:
    """Only a watch that compares ranks is a comparison."""
    assert kind is type(watching_of(Watch(place, "model")))

"""Facts about the comparison of the checksums that ranks report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relay_client.diverging import MAX_PENDING, MAX_TRIES, Diverging, watching_of
from relay_client.verbs.watch import Watch
from relay_client.watching import Watching
from relay_core.agent_api.evaluation import Leaf, Selection, Value
from relay_core.agent_api.watch import Compared, Hit
from relay_core.records import encode

WHOLE = Selection()
AGAIN = Selection(0, 2)
"""The whole value, requested in each step."""
PARTS = {"leaves": 2, "parts": ("aaaaaa", "bbbbbb")}
OTHER = {"parts": ("aaaaaa", "cccccc")}
SEARCHING = "searching in the next steps for the first element that differs"


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
        self.all = [rank for rank in range(ranks) if rank not in silent]
        self._processes = ranks

    def report(
        self, step: str, *values: Value | str, selection: Selection | None = None, ranks: str = "all"
    ) -> list[str]:
        """Let ranks report a value, or an error, at a step; return the lines without their times.

        Args:
            step: The step.
            values: That of each rank; "" if it reports nothing.
            selection: The part of the value; None for what the last request contains.
            ranks: The ranks that hold the same.
        """
        selection = selection or self.watching.changes["selection"] or WHOLE
        self._number += 1
        entries = []
        for rank in self.all:
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
    """A difference that is there again in a later step is shown; then ever smaller parts are requested."""
    ranks = Ranks()
    other = value("22", **OTHER)
    assert [] == ranks.report("step 1", value("11"), other, value("11"))
    assert AGAIN == ranks.watching.changes["selection"]
    assert [] == ranks.report("step 2", value("11"), other, value("11"), selection=WHOLE)  # asked before
    assert not ranks.watching.has_value
    assert [
        "step 3: rank 1     differs, checksum 22 (2 tensors and values)",
        "step 3: ranks 0,2  reference value, checksum 11 (2 tensors and values)",
    ] == ranks.report("step 3", value("11"), other, value("11"))
    assert [SEARCHING] == ranks.watching.notes()
    assert ranks.watching.has_value
    assert Selection(1, 2) == ranks.watching.changes["selection"]
    leaf = Leaf("fc.weight", "[2] float32", 2)
    odd = replace(other, digest="4", leaf=leaf, parts=("cccccc", "bbbbbb"))
    assert [] == ranks.report("step 4", value("3", leaf=leaf), odd, value("3", leaf=leaf))
    assert Selection(1, 2, (0, 1)) == ranks.watching.changes["selection"]
    one, two = (replace(leaf, shown=(text,)) for text in ("0.1", "0.2"))
    [odd_line, usual] = ranks.report("step 5", value("5", leaf=one), value("6", leaf=two), value("5", leaf=one))
    assert "step 5: rank 1     first differs at 'fc.weight' [2] float32, element 0: 0.2 instead of 0.1" == odd_line
    assert "step 5: ranks 0,2  reference value, checksum 11 (2 tensors and values)" == usual
    assert "the watch has ended: the ranks differ" == ranks.watching.end
    assert [] == ranks.report("step 6", value("11"), other, value("11"))


def test_difference_that_is_not_confirmed() -> None:
    """Values may be those of different steps, as after a restart, so the next step decides."""
    ranks = Ranks(2)
    assert [] == ranks.report("step 1", value("11"), value("22"))
    assert ["step 2: ranks 0-1  equal, checksum 33 (2 tensors and values)"] == ranks.report(
        "step 2", value("33"), value("33")
    )
    assert ["a difference in one step was not confirmed by the next one"] == ranks.watching.notes()
    assert (False, "", {"selection": None}) == (ranks.watching.has_value, ranks.watching.end, ranks.watching.changes)


def test_part_that_is_equal_again() -> None:
    """The search begins again with the whole value, in each step, and ends if that happens all the time."""
    ranks = Ranks(2)
    for number in (1, 2):
        ranks.report(f"step {number}", value("11"), value("22", **OTHER))
    assert Selection(1, 2) == ranks.watching.changes["selection"]
    assert [] == ranks.report("step 3", value("3"), value("3"))
    assert AGAIN == ranks.watching.changes["selection"]
    ranks.report("step 4", value("4"), value("5", parts=("cccccc", "bbbbbb")))
    assert Selection(0, 1) == ranks.watching.changes["selection"]
    for number in range(MAX_TRIES):
        lines = ranks.report(f"step {number + 5}", value("4"), value("4"))
    assert "rank 0  differs at the value: the values keep changing" in lines[0]
    assert "the watch has ended: the ranks differ" == ranks.watching.end


def test_part_that_a_rank_does_not_have() -> None:
    """A value with more parts is found although the common parts are equal."""
    ranks = Ranks(2)
    more = value("22", leaves=3, parts=("aaaaaa", "bbbbbb", "cccccc"))
    for number in (1, 2):
        ranks.report(f"step {number}", value("11"), more)
    ranks.report("step 3", value("11"), value("11", leaves=3))
    assert Selection(2, 3) == ranks.watching.changes["selection"]
    leaf = Leaf("extra", "[2] float32", 2)
    lines = ranks.report("step 4", value("0"), value("1", leaves=3, leaf=leaf))
    assert "first differs at 'extra': missing instead of [2] float32" in lines[0]


def test_rank_that_ends_during_the_search() -> None:
    """Another rank with the same value takes its place; without any, the search ends."""
    ranks = Ranks(4)
    other = value("22", **OTHER)
    for number in (1, 2):
        ranks.report(f"step {number}", value("11"), value("11"), other, other)
    ranks.all = [0, 1, 3]
    leave(ranks, 2)
    part = {"parts": ("cccccc",)}
    assert [] == ranks.report("step 3", value("3"), value("3"), "", value("4", **part))
    leave(ranks, 3)
    lines = ranks.report("step 4", value("3"), value("3"))
    assert "ranks 0-1  differs at the value: all ranks with one of the values have ended" in lines[0]


def leave(ranks: Ranks, rank: int) -> None:
    """Let a rank end."""
    ranks.all = [each for each in ranks.all if each != rank]
    entry = {"rank": rank, "port": 5678 + rank, "is_silent": True, "error": "has ended"}
    ranks.watching.received({"ranks": [entry]})


def test_replica_groups() -> None:
    """Only ranks that hold the same part are compared with each other."""
    ranks = Ranks(4)
    assert [] == ranks.report("step 1", value("11"), "", value("11"), ranks="0,2")[1:]
    [line] = ranks.report("step 1", "", value("22"), "", value("22"), ranks="1,3")
    assert "step 1: ranks 1,3  equal, checksum 22 (2 tensors and values)" == line
    [line] = ranks.report("step 2", value("12"), "", value("12"), ranks="0,2")
    assert "step 2: ranks 0,2  equal, checksum 12 (2 tensors and values)" == line


def test_difference_in_one_replica_group() -> None:
    """While it is to be confirmed, steps of other ranks are not shown, and do not count."""
    ranks = Ranks(4)
    for number in range(2):
        ranks.report(f"step {number}", value("11"), "", value("11"), ranks="0,2")
        ranks.report(f"step {number}", "", value("33"), "", value("33"), ranks="1,3")
    assert [] == ranks.watching.notes()
    ranks.report("step 2", value("11"), "", value("22", **OTHER), ranks="0,2")
    assert AGAIN == ranks.watching.changes["selection"]
    assert [] == ranks.report("step 3", "", value("33"), "", value("33"), ranks="1,3")
    assert AGAIN == ranks.watching.changes["selection"]
    [odd, _] = ranks.report("step 3", value("11"), "", value("22", **OTHER), ranks="0,2")
    assert "step 3: rank 0  differs, checksum 11 (2 tensors and values)" == odd


def test_rank_that_has_not_answered_yet() -> None:
    """No step is compared before all ranks have answered once."""
    ranks = Ranks(3, silent=(2,))
    assert [] == ranks.report("step 1", value("11"), value("11"))


def test_step_that_a_rank_does_not_report() -> None:
    """It is left out, and named once, when a later step is compared."""
    ranks = Ranks()
    ranks.report("step 1", value("11"), value("11"))
    ranks.report("step 2", value("11"), value("11"), value("11"))
    assert ["not compared: rank 2 reported a later step, but not step 1"] == ranks.watching.notes()
    ranks.report("step 3", value("11"), value("11"))
    ranks.report("step 4", value("11"), value("11"), value("11"))
    assert [] == ranks.watching.notes()


def test_ranks_that_report_many_steps_at_once() -> None:
    """Each step is compared although the answers of a node contain many."""
    ranks = Ranks(2)
    for number in range(100):
        ranks.report(f"step {number}", value("11"))
    lines = [ranks.report(f"step {number}", "", value("11")) for number in range(100)]
    assert all(
        line == [f"step {n}: ranks 0-1  equal, checksum 11 (2 tensors and values)"] for n, line in enumerate(lines)
    )
    assert [] == ranks.watching.notes()


def test_rank_that_did_not_answer_meanwhile() -> None:
    """What it reports later about a step that was compared is left out, without a sentence."""
    ranks = Ranks(3)
    ranks.report("step 1", value("11"), value("11"), value("11"))
    leave(ranks, 2)
    [line] = ranks.report("step 2", value("11"), value("11"))
    assert line.startswith("step 2: ranks 0-1  equal")
    ranks.all = [0, 1, 2]
    assert [] == ranks.report("step 2", "", "", value("11"))
    [line] = ranks.report("step 3", value("11"), value("11"), value("11"))
    assert line.startswith("step 3: ranks 0-2  equal")
    assert [] == ranks.watching.notes()


def test_step_that_is_repeated() -> None:
    """After a restart, a step with the number of an earlier one is compared again."""
    ranks = Ranks(2)
    for digest in ("11", "22"):
        [line] = ranks.report("step 1", value(digest), value(digest))
        assert line.endswith(f"equal, checksum {digest} (2 tensors and values)")


def test_watch_that_has_ended_in_a_rank() -> None:
    """The other ranks are compared without it."""
    ranks = Ranks(3)
    ranks.report("step 1", value("11"), value("11"), value("11"))
    entry = {"rank": 2, "port": 5680, "process": "a 1", "place": "optimizer steps", "ended": "because of its time"}
    ranks.watching.received({"ranks": [entry], "processes": 3})
    ranks.all = [0, 1]
    [line] = ranks.report("step 2", value("11"), value("11"))
    assert line.startswith("step 2: ranks 0-1  equal")


def test_ranks_that_hold_something_else_since_a_restart() -> None:
    """A difference of ranks that no longer hold the same value is not waited for."""
    ranks = Ranks(2)
    for number in range(2):
        ranks.report(f"step {number}", value("11"), value("11"), ranks="0-1")
    ranks.report("step 2", value("11"), value("22", **OTHER), ranks="0-1")
    assert AGAIN == ranks.watching.changes["selection"]
    for _ in range(2):
        ranks.report("step 1", value("33"), value("33"), ranks="0,1,2", selection=WHOLE)
        ranks.report("step 1", value("33"), value("33"), ranks="0,1,2", selection=AGAIN)
    assert {"selection": None} == ranks.watching.changes


def test_steps_that_are_never_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a number of them is kept."""
    monkeypatch.setattr("relay_client.diverging.MAX_PENDING", 10)
    assert MAX_PENDING > 10
    ranks = Ranks(2)
    for number in range(100):
        ranks.report(f"step {number}", value("11"))
    assert 10 == len(ranks.watching._pending)


def test_several_jobs() -> None:
    """Ranks of several jobs are not compared with each other; a sentence shows how to choose one."""
    ranks = Ranks(1)
    hits = [encode(Hit(1, 1, 1e9, text, compared=Compared(value("1"), WHOLE, "all"))) for text in ("step 1", "step 9")]
    entries = [{"rank": 0, "port": port, "process": "a 1", "place": "p"} for port in (5678, 5690)]
    new = ranks.watching.received({"ranks": [{**entries[index], "hits": [hits[index]]} for index in range(2)]})
    assert [] == ranks.watching.lines(new)
    assert ["several jobs are connected; choose one by the ports of its processes, as in --ports 5678"] == (
        ranks.watching.notes()
    )


def test_expression_that_fails() -> None:
    """Its exception is shown."""
    assert ["ranks 0-2     #1  no value: NameError: no"] == Ranks().report("step 1", *["NameError: no"] * 3)


def test_texts_of_a_job() -> None:
    """What a job has put into its texts is a part of a line, and what only an agent may say is left out."""
    ranks = Ranks(2)
    one, other = (Leaf("w\nforged: 1", f"d\nforged: {number}") for number in (2, 3))
    lines = []
    for number in (1, 2):
        odd = value("2", leaves=1, leaf=other, error="no", text="no")
        lines += ranks.report(f"s{number}\nforged: 3", value("1", leaves=1, leaf=one), odd)
    assert [] == [line for line in "\n".join(lines).splitlines() if line.startswith("forged")]
    assert lines
    assert not any("no value" in line for line in lines)


@pytest.mark.parametrize(("place", "kind"), [("diverge", Diverging), ("nan", Watching), ("train.py:8", Watching)])
def test_kind_of_watch(place: str, kind: type[Watching]) -> None:
    """Only a watch that compares ranks is a comparison."""
    assert kind is type(watching_of(Watch(place, "model")))

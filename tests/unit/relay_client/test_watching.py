"""Facts about what is known of a watch from one answer to the next."""

import json
import re
from typing import Any

import pytest

from relay_client.watching import MAX_LAST, Watching, hit_as_object
from relay_core.agent_api.stacks import Frame
from relay_core.agent_api.watch import MAX_HITS, Hit
from relay_core.records import encode

PLACE = "step train.py:88"
REACHED = f"the ranks have reached {PLACE} 8x"
HINT = "hint: 'relay-client stacks' shows where the ranks are"


def entry(rank: int | None, *hits: Hit, port: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return what the verb answers about one rank."""
    state = {"rank": rank, "port": 5678 + (rank or 0) if port is None else port, "process": "a 1", "place": PLACE}
    return {**state, "hits": [encode(hit) for hit in hits], **fields}


def hit(number: int, text: str = "0.5", **fields: Any) -> Hit:
    """Return a hit whose count is its number, at the second of its number."""
    return Hit(**{"number": number, "reached": number, "time": 1e9 + number, "text": text, **fields})


def shown(watching: Watching, *entries: dict[str, Any]) -> list[str]:
    """Return the lines about an answer without their times."""
    lines = watching.lines(watching.received({"ranks": list(entries)}))
    assert all(re.match(r"\d\d:\d\d:\d\d  ", line) for line in lines)
    return [line[10:] for line in lines]


def test_same_values_are_one_line() -> None:
    """Ranks with the same value in a step share a line; another value stays visible; columns are aligned."""
    watching = Watching(PLACE)
    found = shown(
        watching,
        entry(0, hit(9), hit(10)),
        entry(1, hit(9), hit(10, "nan")),
        entry(2, hit(9), hit(10)),
        entry(3, hit(9), hit(10)),
    )
    assert ["ranks 0-3     #9  0.5", "ranks 0,2-3   #10  0.5", "rank 1        #10  nan"] == found


def test_captured_variables() -> None:
    """The variables of a hit are below its line, once for ranks that have the same; JSON has them, too."""
    frames = (Frame("/mnt/train.py", 5, "fit", {"rate": "0.5"}), Frame("/mnt/train.py", 88, "step", {"loss": "nan"}))
    watching = Watching(PLACE)
    same = [entry(rank, hit(1, "nan", frames=frames)) for rank in (0, 1)]
    found = watching.received({"ranks": [*same, entry(2, hit(1, "nan", frames=frames[1:]))]})
    lines = watching.lines(found)
    shown = ["    /mnt/train.py:5 fit", "        rate = 0.5", "    /mnt/train.py:88 step", "        loss = nan"]
    assert [*shown, *shown[2:]] == [line for line in lines if line.startswith(" ")]
    assert ["ranks 0-1     #1  nan", "rank 2        #1  nan"] == [line[10:] for line in (lines[0], lines[5])]
    last = {"file": "/mnt/train.py", "line": 88, "function": "step", "locals": {"loss": "nan"}}
    assert last == json.loads(json.dumps(hit_as_object(*found[2])))["frames"][0]


def test_line_ends_in_captured_variables() -> None:
    """What a job has put into a name or a path cannot look like a line of relay-client."""
    watching = Watching(PLACE)
    frame = Frame("a\nforged: 1", 1, "b\nforged: 2", {"c\nforged: 3": "d\nforged: 4"})
    lines = watching.lines(watching.received({"ranks": [entry(0, hit(1, frames=(frame,)))]}))
    assert [] == [line for line in "\n".join(lines).splitlines() if line.startswith("forged")]
    assert 3 == len(lines)


def test_counts_that_differ() -> None:
    """Ranks that began to watch at different steps share the lines of equal values; a rank is once in a line."""
    first, second = [hit(1, time=1.0), hit(2, time=2.0)], [hit(2, time=1.1), hit(3, time=2.1)]
    assert ["ranks 0-1     #1-2  0.5", "ranks 0-1     #2-3  0.5"] == shown(
        Watching(PLACE), entry(0, *first), entry(1, *second)
    )


def test_order_of_time() -> None:
    """Hits are shown in the order of their times, whatever the order of the ranks is."""
    found = shown(
        Watching(PLACE), entry(0, hit(2, "b", time=5.0)), entry(1, hit(1, "a", time=4.0), hit(3, "c", time=6.0))
    )
    assert ["rank 1        #1  a", "rank 0        #2  b", "rank 1        #3  c"] == found


def test_repeated_hits() -> None:
    """A hit that is repeated, because its acknowledgment has not arrived, is shown once."""
    watching = Watching(PLACE)
    assert ["rank 0        #1  0.5"] == shown(watching, entry(0, hit(1)))
    assert {5678: 1} == watching.cursors
    assert ["rank 0        #2  0.5"] == shown(watching, entry(0, hit(1), hit(2)))
    assert ({5678: 2}, 2) == (watching.cursors, watching.reported)


def test_restarted_rank() -> None:
    """The hits of a process that has taken the place of another one are new, whatever their numbers are."""
    watching = Watching(PLACE)
    shown(watching, entry(0, hit(7)))
    shown(watching, entry(0, is_silent=True, error="not found"))
    assert {5678: 7} == watching.cursors
    assert ["rank 0        #1  0.5"] == shown(watching, entry(0, hit(1), process="a 2"))
    assert {5678: 1} == watching.cursors


def test_limit() -> None:
    """The limit is for all ranks together; the earliest hits count."""
    watching = Watching(PLACE, 3)
    shown(watching, entry(0, hit(1)))
    assert "" == watching.end
    assert 2 == len(shown(watching, entry(0, hit(2), hit(3)), entry(1, hit(4))))
    assert ("the watch has ended (--hits 3)", 3) == (watching.end, watching.reported)
    assert [] == shown(watching, entry(1, hit(4), hit(5)))


def test_limit_of_a_watch_that_holds() -> None:
    """Ranks that are held beyond the limit are reported, too: they wait for a debugger."""
    watching = Watching(PLACE, 1, is_holding=True)
    found = watching.received({"ranks": [entry(0, hit(1)), entry(1, hit(1))]})
    assert ["rank 0", "rank 1"] == [line.partition(":")[0] for line in watching.holding(found)]
    assert "the watch has ended (--hits 1)" == watching.end


def test_long_value_in_the_table() -> None:
    """The table shows the beginning of a long value, which the line of the hit has shown completely."""
    watching = Watching(PLACE)
    shown(watching, entry(0, hit(1, "x" * 1000)))
    assert watching.table(1.0)[1].endswith(f"  {'x' * MAX_LAST}...")


def test_note_that_becomes_longer() -> None:
    """Of a note to which something is added, only that is new."""
    watching = Watching(PLACE)
    watching.received({"ranks": [entry(0, note="line 87 has no code, so line 88 is watched")]})
    assert 1 == len(watching.notes())
    longer = "line 87 has no code, so line 88 is watched; the condition raises NameError"
    watching.received({"ranks": [entry(0, note=longer)]})
    assert ["rank 0: the condition raises NameError"] == watching.notes()


def test_rank_that_answers_again() -> None:
    """An outage of a rank is noted each time, and so is its end."""
    watching = Watching(PLACE)
    for _ in range(2):
        watching.received({"ranks": [entry(0)]})
        assert "no answer" not in "".join(watching.notes())
        watching.received({"ranks": [entry(0, error="no answer within 5 s", is_silent=True)]})
        assert ["rank 0: no answer within 5 s"] == watching.notes()
        assert [] == watching.notes()
    watching.received({"ranks": [entry(0)]})
    assert ["rank 0: answering again"] == watching.notes()


def test_hits_without_a_value() -> None:
    """A hit whose expression has raised an exception has no value; one that is only counted has."""
    watching = Watching(PLACE)
    watching.received({"ranks": [entry(0, hit(1, "", error="NameError: name 'los' is not defined"))]})
    assert (1, False) == (watching.reported, watching.has_value)
    watching.received({"ranks": [entry(0, hit(2, ""), hit(3, "", error="KeyError: 1"))]})
    assert (3, True) == (watching.reported, watching.has_value)


def test_texts_of_the_job() -> None:
    """Control characters and line ends are escaped in values, exceptions, names and notes; long values are cut."""
    watching = Watching(PLACE)
    evil = "a\nb\x1b]0;x\x07"
    (value,) = shown(watching, entry(0, hit(1, evil, thread=evil), note=evil))
    assert r"rank 0        #1  a\nb\x1b]0;x\x07  (thread a\nb\x1b]0;x\x07)" == value
    assert [r"rank 0: a\nb\x1b]0;x\x07"] == watching.notes()
    (error,) = shown(watching, entry(0, hit(2, "", error=evil)))
    assert r"rank 0        #2  no value: a\nb\x1b]0;x\x07" == error
    (long,) = shown(watching, entry(0, hit(3, "x" * 9999)))
    assert long.endswith("xxx...")
    assert 520 > len(long)
    (error,) = shown(watching, entry(0, hit(4, "", error="x" * 9999, thread="y" * 9999), note="z" * 9999))
    assert 1100 > len(error)
    assert 520 > len(watching.notes()[0])
    assert not any(char in line for char in "\n\x1b\x07" for line in watching.table(1.0))


def test_notes_once() -> None:
    """Each sentence is shown once for each rank, for all ranks together that have it."""
    watching = Watching(PLACE)
    watching.received({"ranks": [entry(0, place=""), entry(1, place=""), entry(2, note="n", missed=1)]})
    assert [
        "ranks 0-1: the file is not loaded yet; the watch begins once it is",
        "rank 2: n",
        "rank 2: the line is reached too often to report each value; the table at the end has the numbers",
    ] == watching.notes()
    watching.received({"ranks": [entry(0, note="n"), entry(1, place=""), entry(2, note="n", missed=9)]})
    assert ["rank 0: n"] == watching.notes()
    assert [] == watching.notes()


def test_ranks_that_watch() -> None:
    """The watch is over if no rank can watch, but not because some cannot, or are absent."""
    watching = Watching(PLACE)
    broken = {"error": "SyntaxError: invalid syntax", "place": ""}
    watching.received({"ranks": [entry(0, **broken), entry(1), entry(2, error="not found", is_silent=True)]})
    assert ("rank 1", "") == (watching.ranks, watching.end)
    assert ["rank 0: SyntaxError: invalid syntax", "rank 2: not found"] == watching.notes()
    watching.received({"ranks": [entry(1, place="", note="train.py has no code at line 900 or after it")]})
    assert ("", "") == (watching.ranks, watching.end)
    assert ["rank 1: train.py has no code at line 900 or after it"] == watching.notes()
    watching.received({"ranks": [entry(1, **broken), entry(2, **broken)]})
    assert ("", "the watch has ended in all ranks: SyntaxError: invalid syntax") == (watching.ranks, watching.end)


def test_end_in_the_ranks() -> None:
    """The watch is over once it has ended in each rank that can watch."""
    watching = Watching(PLACE)
    watching.received({"ranks": [entry(0, ended="after 60 s"), entry(1)]})
    assert "" == watching.end
    watching.received({"ranks": [entry(1, ended="after 60 s")]})
    assert "the watch has ended in all ranks: after 60 s" == watching.end


@pytest.mark.parametrize(
    ("reached", "skipped", "has_condition", "why"),
    [
        (0, 0, True, f"{PLACE} has not been reached in any call that is watched. {HINT}"),
        (8, 0, True, f"{REACHED}, but the condition has not been true"),
        (8, 7, True, f"{REACHED}, but the condition has not been true; it was not evaluated 7x"),
        (8, 0, False, f"{REACHED}, but no value has arrived"),
        (8, 8, False, f"{REACHED}, but no value has arrived; it was not evaluated 8x"),
    ],
)
def test_no_hits(reached: int, skipped: int, has_condition: bool, why: str) -> None:
    """Without hits, the user learns whether the line is reached, and whether what is evaluated there was not true."""
    watching = Watching(PLACE)
    watching.received({"ranks": [entry(0, reached=reached, skipped=skipped)]})
    assert f"no hit yet: {why}" == watching.why_no_hits(has_condition=has_condition)


def test_no_hits_of_a_moved_line() -> None:
    """The lines that the ranks watch are named, which may be others."""
    watching = Watching(PLACE)
    watching.received({"ranks": [entry(0, place="step train.py:90"), entry(1, place="step train.py:90")]})
    assert watching.why_no_hits(has_condition=False).startswith("no hit yet: step train.py:90 has not been reached in")


def test_gradients() -> None:
    """Gradients are named as what is watched, also while torch is not loaded and nothing is found."""
    watching = Watching("")
    watching.received({"ranks": [entry(0, place=""), entry(1, place="optimizer steps", reached=8)]})
    assert ("the gradients", "ranks 0-1") == (watching.what, watching.ranks)
    assert ["rank 0: torch is not loaded yet; the watch begins once it is"] == watching.notes()
    assert "no hit yet: all gradients were finite in 8 optimizer steps" == watching.why_no_hits(has_condition=False)
    watching = Watching("")
    watching.received({"ranks": [entry(0, place="optimizer steps")]})
    assert f"no hit yet: no optimizer has taken a step. {HINT}" == watching.why_no_hits(has_condition=False)


def test_ranks_that_wait_for_a_debugger() -> None:
    """For each rank that is held, the command that debugs it is named; one whose expression raises is not held."""
    watching = Watching(PLACE)
    failed = entry(1, hit(1, "", error="NameError"))
    hits = watching.received({"ranks": [failed, entry(2, hit(1)), entry(None, hit(1), port=7000)]})
    assert [
        "rank 2: waiting for a debugger: 'relay-client pdb 2', or F5 in the editor",
        "port 7000: waiting for a debugger: 'relay-client pdb --port 7000', or F5 in the editor",
    ] == watching.holding(hits)


def test_table() -> None:
    """The table has a line for each rank; the cost is that of the rank with the highest."""
    watching = Watching(PLACE)
    shown(watching, entry(0, hit(1, "0"), reached=12, spent=0.0125), entry(1, reached=4711, spent=2e-6, skipped=3))
    assert [
        "         reached  reported   skipped   dropped     spent  last value",
        "rank 0        12         1         0         0   12.5 ms  0",
        "rank 1      4711         0         3         0    0.0 ms",
        "cost: 12.5 ms of 50 s in rank 0 (0.025 %)",
    ] == watching.table(50.0)


def test_table_of_some_ranks() -> None:
    """A rank that never had a process has no line; a duration below ten seconds has a decimal."""
    watching = Watching(PLACE)
    shown(watching, entry(0, reached=12, spent=0.001), entry(7, place="", error="not found", is_silent=True))
    assert [
        "         reached  reported   skipped   dropped     spent  last value",
        "rank 0        12         0         0         0    1.0 ms",
        "cost: 1.0 ms of 0.5 s in rank 0 (0.200 %)",
    ] == watching.table(0.5)


def test_file_that_may_not_exist() -> None:
    """That the file is not on this machine either follows the note that it is not loaded."""
    watching = Watching(PLACE, doubt=". tarin.py does not exist")
    watching.received({"ranks": [entry(0, place="")]})
    note = "rank 0: the file is not loaded yet; the watch begins once it is. tarin.py does not exist"
    assert [note] == watching.notes()


def test_large_numbers() -> None:
    """Columns with large numbers are aligned, and at least two spaces apart."""
    watching = Watching(PLACE)
    shown(watching, entry(0, reached=10**12, skipped=10**11, missed=2**63 - 1, spent=1e8), entry(1, reached=1))
    title, *rows, _ = watching.table(1e9)
    ends = [match.end() for match in re.finditer(r"(?<=  )\w+", title)][:-1]
    for row in rows:
        assert ends == [match.end() for match in re.finditer(r"(?<=  )\S+(?: ms)?", row)], (title, row)
    assert ["rank 0", "1000000000000", "0", "100000000000", "9223372036854775807"] == re.split(" {2,}", rows[0])[:-1]


def test_number_below_the_last_one() -> None:
    """Smaller numbers, after the clock of the node was set back, begin a new count; each hit is shown once."""
    watching = Watching(PLACE)
    assert 1 == len(shown(watching, entry(0, hit(2**63 - 1, reached=1))))
    assert ["rank 0        #1  0.5", "rank 0        #2  0.5"] == shown(watching, entry(0, hit(1), hit(2)))
    assert ["rank 0        #3  0.5"] == shown(watching, entry(0, hit(2), hit(3)))
    assert {5678: 3} == watching.cursors


def test_impossible_number() -> None:
    """A hit with a number that no process can have is left out, and does not keep later ones from being shown."""
    watching = Watching(PLACE)
    assert ["rank 0        #1  0.5"] == shown(watching, entry(0, hit(1), hit(10**30), hit(-1)))
    assert ["rank 0        #2  0.5"] == shown(watching, entry(0, hit(1), hit(2)))


@pytest.mark.parametrize("time", [float("nan"), float("inf"), 1e300, -1.0, 32_503_680_000.0])
def test_impossible_time(time: float) -> None:
    """A hit whose time is invalid, or in the far future, is shown."""
    assert ["rank 0        #1  0.5"] == shown(Watching(PLACE), entry(0, hit(1, time=time)))


def test_number_of_hits_in_an_answer() -> None:
    """More hits than a process may send in an answer are left out."""
    assert MAX_HITS == len(shown(Watching(PLACE), entry(0, *map(hit, range(1, 2 * MAX_HITS)))))


def test_several_jobs() -> None:
    """If two jobs have the same rank, the port is added."""
    found = shown(Watching(PLACE), entry(0, hit(1)), entry(0, hit(1), hit(2, "7"), port=6000))
    assert ["rank 0 (ports 5678,6000)  #1  0.5", "rank 0 (port 6000)        #2  7"] == found

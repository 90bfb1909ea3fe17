"""Facts about one watch: what it reports, and what it costs."""

import gc
import threading
import time
import weakref
from pathlib import Path

import pytest

from relay_agent.trigger.watch import FREE_RATE, MAX_CAPTURED
from relay_core.agent_api.watch import MAX_FRAMES, MAX_HITS
from tests.unit.relay_agent.trigger.conftest import Watched

SOURCE = """\
import time

class Odd:
    def __repr__(self):
        raise SystemExit(4)
    def __bool__(self):
        raise KeyError("bool")

def step(loss):
    value = loss  # here
    return value
"""


class Loss:
    """A value that can be referred to weakly."""


def test_values_and_errors(watched: Watched) -> None:
    """A hit has the value of the expression before the line is executed, or the exception that it raises."""
    train, client = watched(SOURCE)
    client.ask("here", "loss + 1")
    client.ask("here", "value", id="later")
    client.ask("here", "Odd()", id="odd")
    train.step(1)
    assert ["2"] == client.texts("here", "loss + 1")
    assert ["NameError: name 'value' is not defined"] == client.texts("here", "value", id="later")
    assert ["SystemExit: 4"] == client.texts("here", "Odd()", id="odd")


def test_hold(watched: Watched) -> None:
    """A hit holds the thread in the frame of the line; an expression that raises does not."""
    train, client = watched(SOURCE)
    held: list[int] = []
    client.on_hold = lambda frame: held.append(frame.f_locals["loss"])
    client.ask("here", "1 / (loss - 1)", is_holding=True)
    train.step(1)
    train.step(2)
    assert ["ZeroDivisionError: division by zero", "1.0"] == client.texts("here", "1 / (loss - 1)")
    assert [2] == held


def test_captured_variables(watched: Watched) -> None:
    """A hit has the variables of its frame and of its callers, innermost last, as they are before the line."""
    train, client = watched(SOURCE)
    client.ask("here", "loss", is_capturing=True)

    def fit(rate: float) -> None:
        train.step(Config(rate))

    fit(0.5)
    frames = client.ask("here", "loss", is_capturing=True).hits[0].frames
    places = [(frame.function, dict(frame.locals)) for frame in frames[-2:]]
    assert [("fit", {"rate": "0.5", "train": places[0][1]["train"]}), ("step", {"loss": "Config(rate=0.5)"})] == places
    assert (train.path.name, 10) == (Path(frames[-1].file).name, frames[-1].line)


class Config:
    """An object whose text is made without its code."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __repr__(self) -> str:
        raise AssertionError("the repr was called")


def test_many_captures(watched: Watched) -> None:
    """What a hit contains is bounded."""
    train, client = watched(SOURCE)
    client.ask("here", is_capturing=True)

    def deep(left: int, texts: list[str]) -> None:
        rows = {f"row {index}": "x" * 100 for index in range(50)}
        deep(left - 1, texts) if left else train.step(rows)

    deep(9, ["x" * 1000] * 100)
    frames = client.ask("here", is_capturing=True).hits[0].frames
    assert MAX_FRAMES == len(frames)
    assert MAX_CAPTURED > sum(len(text) for frame in frames for text in frame.locals.values())


def test_condition_and_frequency(watched: Watched) -> None:
    """The first time that the condition is true is reported, and every n-th time after it."""
    train, client = watched(SOURCE)
    fields = {"condition": "loss > 2", "every": 3}
    client.ask("here", "loss", **fields)
    for loss in range(10):
        train.step(loss)
    answer = client.ask("here", "loss", **fields)
    assert ["3", "6", "9"] == [hit.text for hit in answer.hits]
    assert (10, [4, 7, 10]) == (answer.reached, [hit.reached for hit in answer.hits])


def test_condition_that_raises(watched: Watched) -> None:
    """A condition that raises reports nothing, and is named in a note at once."""
    train, client = watched(SOURCE)
    client.ask("here", condition="Odd()")
    train.step(1)
    answer = client.ask("here", condition="Odd()")
    assert ((), "the condition raises KeyError: 'bool'") == (answer.hits, answer.note)


def test_number_of_hits(watched: Watched) -> None:
    """A watch ends after as many hits, and its line has its own speed again."""
    train, client = watched(SOURCE)
    client.ask("here", "loss", hits=2)
    for loss in range(4):
        train.step(loss)
    answer = client.ask("here", "loss", hits=2)
    assert (["0", "1"], "after 2 hits") == ([hit.text for hit in answer.hits], answer.ended)
    train.step(5)
    assert answer.reached == client.ask("here", "loss", hits=2).reached


def test_hits_are_repeated_until_they_are_acknowledged(watched: Watched) -> None:
    """An answer that was lost is repeated; numbers of another process acknowledge nothing."""
    train, client = watched(SOURCE)
    client.ask("here", "loss")
    train.step(1)
    first = client.ask("here", "loss").hits
    for received in (0, 7, first[0].number + 10**9):
        assert first == client.ask("here", "loss", after={"5678": received}).hits
    train.step(2)
    assert ["2"] == [hit.text for hit in client.ask("here", "loss", after={"5678": first[0].number}).hits]


def test_hits_that_nobody_fetches(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process keeps a limited number of hits, and counts the others."""
    monkeypatch.setattr("relay_agent.trigger.watch.FREE_RATE", 1000)
    train, client = watched(SOURCE)
    client.ask("here", "loss")
    for loss in range(MAX_HITS + 5):
        train.step(loss)
    answer = client.ask("here", "loss")
    assert (MAX_HITS, 5) == (len(answer.hits), answer.missed)


def test_line_that_is_reached_too_often(watched: Watched) -> None:
    """The expression of a hot line takes a small part of the time; what is skipped is counted, and so is the time."""
    train, client = watched(SOURCE)
    slow = "time.sleep(0.01)"
    client.ask("here", slow)
    started = time.monotonic()
    while time.monotonic() < started + 1:
        train.step(1)
    seconds = time.monotonic() - started
    answer = client.ask("here", slow)
    evaluated = len(answer.hits)
    assert FREE_RATE <= evaluated <= 2 * FREE_RATE + 0.02 * seconds / 0.01 + 2
    assert answer.reached == evaluated + answer.skipped
    assert 0.01 * evaluated <= answer.spent
    assert "" == answer.note


def test_condition_of_a_line_that_is_reached_too_often(watched: Watched) -> None:
    """If the condition is not evaluated each time, a note reports it."""
    train, client = watched(SOURCE)
    slow = "time.sleep(0.01)"
    client.ask("here", condition=slow)
    for _ in range(2 * FREE_RATE):
        train.step(1)
    assert "the line is reached too often to evaluate the condition" in client.ask("here", condition=slow).note


def test_evaluation_that_takes_too_long(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """One long evaluation ends the watch."""
    monkeypatch.setattr("relay_agent.trigger.watch.TOO_LONG", 0.05)
    train, client = watched(SOURCE)
    client.ask("here", "time.sleep(0.1)")
    train.step(1)
    train.step(1)
    answer = client.ask("here", "time.sleep(0.1)")
    assert answer.ended.startswith("because one evaluation took 0.1")
    assert 1 == len(answer.hits)


def test_two_threads(watched: Watched) -> None:
    """All times are counted, and of all threads together every n-th one is reported; hits name their thread."""
    train, client = watched(SOURCE)
    client.ask("here", "loss", every=5000)
    threads = [
        threading.Thread(target=lambda: [train.step(loss) for loss in range(10_000)], name="worker") for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    answer = client.ask("here", "loss", every=5000)
    for thread in threads:
        thread.join()
    hits = [*answer.hits, *client.ask("here", "loss", every=5000).hits]
    assert [1, 5001, 10_001, 15_001] == sorted(hit.reached for hit in hits)
    assert 20_000 == client.ask("here", "loss", every=5000).reached
    assert all(hit.thread.startswith(("worker", "thread ")) for hit in hits)


def test_wait_ends_with_the_first_hit(watched: Watched) -> None:
    """A question is answered soon after a hit, and not at the end of its wait."""
    train, client = watched(SOURCE)
    client.ask("here", "loss")
    threading.Timer(0.2, train.step, [7]).start()
    started = time.monotonic()
    assert ["7"] == client.texts("here", "loss", wait=10.0)
    assert time.monotonic() < started + 10


def test_newer_question_ends_the_wait_of_an_older_one(watched: Watched) -> None:
    """Only the last question of a watch waits, so questions whose agent has answered already do not pile up."""
    train, client = watched(SOURCE)
    client.ask("here", "loss")
    older = threading.Thread(target=client.ask, args=("here", "loss"), kwargs={"wait": 10.0})
    older.start()
    started = time.monotonic()
    while client.table._watches["here"]._turn < 2:
        time.sleep(0.001)
    client.ask("here", "loss")
    older.join()
    assert time.monotonic() < started + 10
    train.step(1)
    assert ["1"] == client.texts("here", "loss")


def test_expression_that_reaches_the_line(watched: Watched) -> None:
    """An expression may call the watched function."""
    train, client = watched(SOURCE)
    client.ask("here", "step(loss + 1)")
    train.step(1)
    assert ["2"] == client.texts("here", "step(loss + 1)")


def test_notes_are_joined(watched: Watched) -> None:
    """A note about the place does not hide one about the condition."""
    train, client = watched(SOURCE)
    fields = {"condition": "Odd()", "line": 9}
    client.ask("here", **fields)
    train.step(1)
    expected = "the condition raises KeyError: 'bool'; line 9 has no code, so line 10 is watched"
    assert sorted(expected.split("; ")) == sorted(client.ask("here", **fields).note.split("; "))


def test_exception_that_the_job_keeps(watched: Watched) -> None:
    """It keeps neither the values of the functions that were watched, nor the frames of the evaluation."""
    train, client = watched(SOURCE + "kept = KeyError()\n\ndef fail(loss):\n    raise kept\n")
    client.ask("here", "fail(loss)")
    loss = Loss()
    reference = weakref.ref(loss)
    train.step(loss)
    assert ["KeyError"] == client.texts("here", "fail(loss)", is_last=True)
    del loss
    gc.collect()
    assert reference() is None
    assert train.kept.__traceback__ is None

"""Facts about the list of threads of many ranks."""

from tests.support.sessions.scripted_ranks import Stage, stopped


def names(stage: Stage) -> list[str]:
    return [each["name"] for each in stage.ask("threads")["threads"]]


def test_eight_ranks_are_listed_one_by_one() -> None:
    """Up to eight ranks, every thread has an entry."""
    stage, _ = stopped(*range(8))
    assert 16 == len(names(stage))


def test_many_ranks_at_one_place_are_one_entry() -> None:
    """The ranks at the same place are one entry, the odd ones stand alone, and those that run are another one."""
    stage, ranks = stopped(*range(12))
    ranks[5].line = 70
    ranks[6].moves = ranks[7].moves = lambda _rank: None
    entry = stage.ask("threads")["threads"][0]
    stage.ask("next", threadId=entry["id"])
    stage.wait(3)
    assert ["ranks 0-4, 8-11 at train.py:11", "rank 5 · MainThread", "ranks 6-7 running"] == names(stage)


def test_an_entry_is_one_of_its_ranks() -> None:
    """Stack and variables of an entry are those of one of its ranks, which is shown as stopped."""
    stage, _ = stopped(*range(12))
    [entry] = stage.ask("threads")["threads"]
    assert "ranks 0-11 at train.py:10" == entry["name"]
    assert "train0" == stage.ask("stackTrace", threadId=entry["id"])["stackFrames"][0]["name"]
    assert entry["id"] in [body["threadId"] for body in stage.events("stopped")]


def test_few_stops_of_many_ranks_are_shown() -> None:
    """Of sixty-four ranks that step together, a handful of events reaches the editor, and an entry with all."""
    stage, _ = stopped(*range(64))
    entry = stage.ask("threads")["threads"][0]
    stage.forget()
    stage.ask("next", threadId=entry["id"])
    stage.wait(3)
    assert 1 == len(stage.events("stopped"))
    assert ["ranks 0-63 at train.py:11"] == names(stage)


def test_an_odd_rank_is_shown_as_stopped() -> None:
    """A rank that stops elsewhere has an entry that is stopped, so that its stack can be opened."""
    stage, ranks = stopped(*range(12))
    ranks[5].line = 70
    stage.forget()
    stage.ask("next", threadId=stage.ask("threads")["threads"][0]["id"])
    stage.wait(3)
    odd = next(each["id"] for each in stage.ask("threads")["threads"] if each["name"].startswith("rank 5"))
    assert odd in [body["threadId"] for body in stage.events("stopped")]


def test_expanded_ranks_are_listed_one_by_one() -> None:
    """`@expand` lists ranks with all their threads, which the editor then requests; `@collapse` undoes it."""
    stage, _ = stopped(*range(12))
    assert 1 == len(names(stage))
    stage.forget()
    stage.ask("evaluate", expression="@expand 3-4", context="repl")
    stage.wait(1)
    assert [] != stage.events("thread")
    expected = [f"rank {rank} · {name}" for rank in (3, 4) for name in ("MainThread", "Thread-1")]
    assert [*expected, "ranks 0-2, 5-11 at train.py:10"] == names(stage)
    stage.ask("evaluate", expression="@expand", context="repl")
    assert 24 == len(names(stage))
    stage.ask("evaluate", expression="@collapse", context="repl")
    assert ["ranks 0-11 at train.py:10"] == names(stage)


def test_a_thread_starts_before_it_stops() -> None:
    """A rank that stops before its threads are known: VS Code would drop a stop of a thread that starts later."""
    stage = Stage()
    stage.send("initialize")
    stage.send("attach")
    rank = stage.join(0)
    stage.settle()
    stage.forget()
    rank.stop()
    stage.send("configurationDone")
    stage.settle()
    events = [each for each in stage.received if each["type"] == "event" and each["event"] in {"thread", "stopped"}]
    [stop] = stage.events("stopped")
    kinds = [each["event"] for each in events if each["body"]["threadId"] == stop["threadId"]]
    assert ["thread", "stopped"] == kinds


def test_name_that_is_known_after_the_stop() -> None:
    """A thread that stops before its name is known is shown as stopped again, so that the editor requests the name."""
    stage = Stage()
    stage.send("initialize")
    stage.send("attach")
    rank = stage.join(0)
    rank._event("stopped", reason="breakpoint", threadId=2, allThreadsStopped=True)
    stage.send("configurationDone")
    stage.settle()
    first, second = (body for body in stage.events("stopped") if body["reason"] == "breakpoint")
    assert second == {**first, "preserveFocusHint": True}
    assert "rank 0 · Thread-1" in names(stage)

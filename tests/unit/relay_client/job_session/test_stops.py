"""Facts about what a user sees of ranks that are running while others are stopped, with scripted ranks."""

from tests.support.sessions.scripted_ranks import attached, stopped


def test_ranks_that_are_not_stepped_are_named_with_what_they_are_doing() -> None:
    """After the first stop in a running job, and after a step of the only stopped rank, the line names the others."""
    stage, ranks = attached(0, 1, 2)
    ranks[1].stop()
    stage.settle()
    stage.wait(1)
    lines = []
    for _ in range(2):
        wanted = stage.wanted_places.pop()
        assert {0, 2} == {stage.ranks[number].rank for number in wanted}
        stage.session.stops.places_found(dict.fromkeys(wanted, "in all_reduce"))
        stage.flush()
        lines.append(stage.lines()[-1])
        stage.ask("next", threadId=stage.thread(1))
    assert [
        f"ranks 0, 2 in all_reduce, waiting for rank 1; rank 1 at train.py:{line}; Continue brings them together"
        for line in (10, 11)
    ] == lines


def test_ranks_that_wait_later_are_named() -> None:
    """Running ranks are looked at again, ever less often; once they wait for the stopped rank, a line names them."""
    stage, ranks = attached(0, 1)
    ranks[1].stop()
    stage.settle()
    shown = []
    for place, seconds in (("in forward", 1), ("in backward", 2), ("in all_reduce", 4)):
        stage.wait(seconds - 0.5)
        assert not stage.wanted_places
        stage.wait(0.5)
        stage.session.stops.places_found(dict.fromkeys(stage.wanted_places.pop(), place))
        stage.flush()
        shown.append(stage.lines()[-1])
    waiting = "rank 0 in all_reduce, waiting for rank 1; rank 1 at train.py:10; Continue brings them together"
    assert ["rank 0 in forward; rank 1 at train.py:10"] * 2 + [waiting] == shown
    stage.wait(1000)
    assert not stage.wanted_places


def test_ranks_that_join_after_the_first_stop_are_summed_up() -> None:
    """If other ranks are stopped when a rank joins, another line shows what that rank is doing."""
    stage, _ranks = stopped(0, 1)
    assert "ranks 0-1 at train.py:10" == stage.lines()[-1]
    stage.join(2)
    stage.settle()
    stage.wait(1)
    stage.session.stops.places_found(dict.fromkeys(stage.wanted_places[-1], "in barrier"))
    stage.flush()
    shown = "ranks 0-1 at train.py:10; rank 2 in barrier, waiting for ranks 0-1; Continue brings them together"
    assert shown == stage.lines()[-1]
    stage.wait(9)
    assert shown == stage.lines()[-1]


def test_where_the_ranks_are_includes_running_ranks() -> None:
    """`@ranks` is answered once it is known what the running ranks are doing, or after a moment without that."""
    stage, ranks = attached(0, 1)
    ranks[0].stop()
    stage.settle()
    stage.wait(3)
    answers = []
    for place in ("in forward", ""):
        stage.wanted_places.clear()
        number = stage.send("evaluate", expression="@ranks", context="repl")
        stage.settle()
        [wanted] = stage.wanted_places
        if place:
            stage.session.stops.places_found(dict.fromkeys(wanted, place))
        stage.wait(3)
        stage.flush()
        answers.append(stage.response(number)["body"]["result"])
    assert ["rank 0 at train.py:10; rank 1 in forward", "rank 0 at train.py:10; rank 1 running"] == answers

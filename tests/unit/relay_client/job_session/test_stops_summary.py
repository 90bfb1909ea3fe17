"""Facts about the line that sums up where all ranks are."""

from relay_client.job_session.members import Member, Place, RankName, Stop
from relay_client.job_session.stops import names_of, summary


def member(rank: int, line: int | None = None, **body: str) -> Member:
    stop = Stop(1, {"reason": "step", **body}, place=Place("/job/src/train.py", line)) if line else None
    return Member(rank, RankName(f"rank {rank}", rank), stop=stop)


def child(pid: int) -> Member:
    return Member(pid, RankName("rank 0", 0).of_child(pid))


def test_ranks_are_joined_by_place() -> None:
    """Ranks at the same place are one part of the line; running ones are named with what they are doing."""
    members = [member(rank, 41) for rank in (0, 1, 2, 5)] + [member(3), member(4)]
    assert "ranks 0-2, 5 at train.py:41; rank 3 in all_reduce; rank 4 running" == summary(members, {3: "in all_reduce"})


def test_ranks_in_a_collective_operation_wait() -> None:
    """Ranks wait for the stopped ones only if all others are in collective operations; Continue ends no exception."""
    members = [member(0), member(1, 14), member(2), member(3)]
    waiting = {0: "in all_reduce", 2: "in all_reduce", 3: "in barrier"}
    assert (
        "ranks 0, 2 in all_reduce, waiting for rank 1; rank 1 at train.py:14; "
        "rank 3 in barrier, waiting for rank 1; Continue brings them together" == summary(members, waiting)
    )
    shown = summary(members, {**waiting, 3: "in synchronize"})
    assert "ranks 0, 2 in all_reduce; rank 1 at train.py:14; rank 3 in synchronize" == shown
    members[1] = member(1, 14, reason="exception", text="ValueError")
    shown = summary(members[:3], waiting)
    assert "ranks 0, 2 in all_reduce, waiting for rank 1; rank 1 at train.py:14 (ValueError)" == shown


def test_an_exception_is_named() -> None:
    """A rank that an exception has stopped stands apart, with the exception."""
    members = [member(0, 41), member(1, 41, reason="exception", text="ValueError")]
    assert "rank 0 at train.py:41; rank 1 at train.py:41 (ValueError)" == summary(members, {})


def test_children_have_their_own_names() -> None:
    """A child process of a rank is not taken for the rank."""
    members = [member(0), child(9)]
    assert "rank 0, rank 0 / process 9" == names_of(members)
    assert "rank 0, 5 child processes" == names_of([member(0), *map(child, range(5))])


def test_running_children_are_left_out() -> None:
    """The line names a child process of a rank only if it is stopped."""
    stopped = child(9)
    stopped.stop = member(0, 7).stop
    assert "rank 0 running" == summary([member(0), child(8)], {})
    assert "rank 0 running; rank 0 / process 9 at train.py:7" == summary([member(0), stopped], {})

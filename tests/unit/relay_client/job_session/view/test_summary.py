"""Facts about the line that sums up where all ranks are."""

from relay_client.job_session.members import Member, Place, RankName, Stop
from relay_client.job_session.view.summary import names_of, summary


def member(rank: int, line: int | None = None, **body: str) -> Member:
    stop = Stop(1, {"reason": "step", **body}, place=Place("/job/src/train.py", line)) if line else None
    return Member(rank, RankName(f"rank {rank}", rank), stop=stop)


def test_ranks_are_joined_by_place() -> None:
    """Ranks at the same place are one part of the line; running ones are named with what they are doing."""
    members = [member(rank, 41) for rank in (0, 1, 2, 5)] + [member(3), member(4)]
    assert "ranks 0-2, 5 at train.py:41; rank 3 in all_reduce; rank 4 running" == summary(members, {3: "in all_reduce"})


def test_an_exception_is_named() -> None:
    """A rank that an exception has stopped stands apart, with the exception."""
    members = [member(0, 41), member(1, 41, reason="exception", text="ValueError")]
    assert "rank 0 at train.py:41; rank 1 at train.py:41 (ValueError)" == summary(members, {})


def test_children_have_their_own_names() -> None:
    """A child process of a rank is not taken for the rank."""
    members = [member(0), Member(9, RankName("rank 0 / worker 1", 0))]
    assert "rank 0, rank 0 / worker 1" == names_of(members)

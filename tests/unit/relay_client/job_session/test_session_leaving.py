"""Facts about the end of the session of all ranks: at the editor's request, and the exit code of the job."""

import pytest

from relay_client.job_session.members import Member, RankName
from relay_client.job_session.session import LEAVE_TIMEOUT, ExitCodes
from tests.support.sessions.scripted_ranks import stopped


def answers(stage, number: int) -> int:
    """Return how many answers a request has."""
    return len([each for each in stage.received if each["type"] == "response" and each["request_seq"] == number])


def test_the_editor_is_answered_when_all_ranks_are_detached() -> None:
    """An editor that has its answer may connect again at once, so no debug session of a rank may be left."""
    stage, ranks = stopped(0, 1)
    number = stage.send("disconnect")
    for rank in ranks:
        assert (0, False) == (answers(stage, number), stage.has_ended)
        stage.leave(rank)
    assert (1, True) == (answers(stage, number), stage.has_ended)


def test_a_rank_that_cannot_be_reached_delays_the_end_for_a_moment_only() -> None:
    """After the time limit the editor is answered, once."""
    stage, (_unreachable, other) = stopped(0, 1)
    number = stage.send("disconnect")
    stage.leave(other)
    stage.wait(LEAVE_TIMEOUT / 2)
    assert (0, False) == (answers(stage, number), stage.has_ended)
    stage.wait(LEAVE_TIMEOUT)
    assert (1, True) == (answers(stage, number), stage.has_ended)
    stage.settle()  # the connection ends after all
    assert {} == stage.ranks
    assert 1 == answers(stage, number)


def test_terminate_is_answered_at_once() -> None:
    """The editor sends `disconnect` when it has received `terminated`."""
    stage, ranks = stopped(0, 1)
    assert 1 == answers(stage, stage.send("terminate"))
    assert (1, False) == (len(stage.events("terminated")), stage.has_ended)
    number = stage.send("disconnect")
    for rank in ranks:
        stage.leave(rank)
    assert (1, True) == (answers(stage, number), stage.has_ended)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], 0),
        ([(0, 0), (1, 0)], 0),
        ([(0, 0), (2, 9), (1, 7)], 9),
        ([(0, 143), (2, 143), (1, 137)], 137),
        ([(0, 143), (2, 137), (1, 1)], 1),
        ([(0, 143)], 143),
        ([(0, 7), (1, 9), (0, 0)], 9),
    ],
)
def test_exit_code_of_the_job(codes: list[tuple[int, int]], expected: int) -> None:
    """The first rank that failed counts, and ranks that the launcher may have ended after it count last."""
    found = ExitCodes()
    for rank, code in codes:
        found.add(Member(rank, RankName(f"rank {rank}", rank)), code)
    assert expected == found.of_job

"""Facts about when a watched job is reported."""

from relay_client.hang.examine import Progress
from relay_client.hang.reports import Job
from relay_client.hang.verdict import JobVerdict
from tests.unit.relay_client.hang.test_verdict import group, ranks, report


def looks(*numbers: tuple[int, int]) -> JobVerdict:
    """Return a job of two ranks that have entered and completed so many operations."""
    reports = [report(rank, group(entered, completed, (0, 1))) for rank, (entered, completed) in enumerate(numbers)]
    return JobVerdict.of(Job(5678, ranks(*reports)))


WAITS = looks((6, 5), (5, 5))


def test_job_that_hangs_is_reported_once() -> None:
    """A job in which ranks wait, and nothing moves for the given time, is reported at its end."""
    progress = Progress(120)
    assert [] == progress.verdicts_due([WAITS], 1000)
    assert [] == progress.verdicts_due([WAITS], 1119)
    assert [WAITS] == progress.verdicts_due([WAITS], 1120)
    assert [] == progress.verdicts_due([WAITS], 1500)


def test_job_that_moves_is_reported_again() -> None:
    """After a movement the time begins again."""
    progress = Progress(120)
    for now in (1000, 1120):
        progress.verdicts_due([WAITS], now)
    later = looks((7, 6), (6, 6))
    assert [] == progress.verdicts_due([later], 1130)
    assert [] == progress.verdicts_due([later], 1249)
    assert [later] == progress.verdicts_due([later], 1250)


def test_job_in_which_nobody_waits() -> None:
    """A job that computes for a long time between its collectives does not hang."""
    progress = Progress(120)
    idle = looks((5, 5), (5, 5))
    assert [] == progress.verdicts_due([idle], 1000)
    assert [] == progress.verdicts_due([idle], 2000)
    assert [] == progress.verdicts_due([WAITS], 2001)
    assert [WAITS] == progress.verdicts_due([WAITS], 2121)

"""Facts about when a watched job is reported."""

from collections.abc import Mapping
from typing import Any

from relay_client.hang.examine import Progress, progress_of
from relay_client.hang.reports import Job
from relay_client.hang.verdict import JobVerdict
from tests.unit.relay_client.hang.test_verdict import group, ranks, report


def looks(*numbers: tuple[int, int]) -> Mapping[str, Any]:
    """Return the progress of a job of two ranks that have entered and completed so many operations."""
    reports = [report(rank, group(entered, completed, (0, 1))) for rank, (entered, completed) in enumerate(numbers)]
    return progress_of(JobVerdict.of(Job(5678, ranks(*reports))))


WAITS = looks((6, 5), (5, 5))


def test_job_that_hangs_is_reported_once() -> None:
    """A job in which ranks wait, and nothing moves for the given time, is reported at its end."""
    progress = Progress(120)
    assert [] == progress.due([WAITS], 1000)
    assert [] == progress.due([WAITS], 1119)
    assert [0] == progress.due([WAITS], 1120)
    assert [] == progress.due([WAITS], 1500)


def test_job_that_moves_is_reported_again() -> None:
    """After a movement the time begins again."""
    progress = Progress(120)
    for now in (1000, 1120):
        progress.due([WAITS], now)
    later = looks((7, 6), (6, 6))
    assert [] == progress.due([later], 1130)
    assert [] == progress.due([later], 1249)
    assert [0] == progress.due([later], 1250)


def test_job_in_which_nobody_waits() -> None:
    """A job that computes for a long time between its collectives does not hang."""
    progress = Progress(120)
    idle = looks((5, 5), (5, 5))
    assert [] == progress.due([idle], 1000)
    assert [] == progress.due([idle], 2000)
    assert [] == progress.due([WAITS], 2001)
    assert [0] == progress.due([WAITS], 2121)

"""Facts about the time between searches for agents while nobody waits for one."""

import itertools
import random

import pytest

from relay_client.agents.search import EXPECTED_FOR, LONG, SETTLING, SHORT, SearchSchedule


def test_no_agent() -> None:
    """A job is found within 5 s in the first hour; after that, the searches are rarer."""
    schedule = SearchSchedule(lambda: 0.5, 0.0)
    times, now = [], 0.0
    while now < 2 * EXPECTED_FOR:
        schedule.searched(now)
        times.append(now)
        now += schedule.remaining(0, now)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert {SHORT, LONG} == set(gaps)
    assert gaps == sorted(gaps)
    assert int(EXPECTED_FOR / SHORT) == gaps.count(SHORT)


@pytest.mark.parametrize("drawn", [0.0, 0.3, 0.999])
def test_random_interval(drawn: float) -> None:
    """The time between two searches varies by 20 %, and is at most 5 s while an agent is expected."""
    schedule = SearchSchedule(lambda: drawn, 0.0)
    schedule.searched(100.0)
    assert SHORT * (0.8 + 0.4 * drawn) == pytest.approx(schedule.remaining(0, 100.0))
    assert schedule.remaining(0, 100.0) < 5


def test_many_clients() -> None:
    """Clients that start together do not search together."""
    generator = random.Random(5)
    delays = set()
    for _ in range(100):
        schedule = SearchSchedule(generator.random, 0.0)
        schedule.searched(0.0)
        delays.add(schedule.remaining(0, 0.0))
    assert len(delays) == 100
    assert min(delays) >= 0.8 * SHORT
    assert max(delays) <= 1.2 * SHORT


def test_agents_that_come_one_after_another() -> None:
    """When one node of a job has been found, others are searched for until nothing has changed for a minute."""
    schedule = SearchSchedule(lambda: 0.5, 0.0)
    schedule.searched(0.0)
    assert SHORT == schedule.remaining(1, 0.0)
    schedule.searched(50.0)
    assert SHORT == schedule.remaining(2, 50.0)
    schedule.searched(50.0 + SETTLING)
    assert LONG == schedule.remaining(2, 50.0 + SETTLING)


def test_job_that_ends() -> None:
    """The end of a job, while the next search is far away, makes it due."""
    schedule = SearchSchedule(lambda: 0.5, 0.0)
    schedule.remaining(1, 0.0)
    schedule.searched(1000.0)
    assert LONG == schedule.remaining(1, 1000.0)
    assert schedule.remaining(0, 1010.0) < 0
    schedule.searched(1010.0)
    assert SHORT == schedule.remaining(0, 1010.0)


def test_announcement_of_a_known_agent() -> None:
    """A change that leaves the number of agents as it is does not postpone or advance the next search."""
    schedule = SearchSchedule(lambda: 0.5, 0.0)
    schedule.remaining(1, 0.0)
    schedule.searched(1000.0)
    assert [LONG, LONG - 3, LONG - 4] == [schedule.remaining(1, now) for now in (1000.0, 1003.0, 1004.0)]

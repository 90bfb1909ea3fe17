"""Facts about the delays between attempts."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from relay_core.hyco.backoff import (
    BUDGET_BURST,
    BUDGET_RATE,
    CAP,
    FIRST_CEILING,
    HEALTHY_AFTER,
    PROMPT_ATTEMPTS,
    PROMPT_CAP,
    AttemptBudget,
    Backoff,
)

CHANCES = st.floats(0, 1, exclude_max=True)


def attempts(seed: int, *, until: float) -> list[float]:
    """Return the times of the attempts of a connection that somebody waits for."""
    backoff, now, times = Backoff(random.Random(seed).random), 0.0, []
    while (now := now + backoff.next_delay(prompt=True)) < until:
        times.append(now)
    return times


def test_the_first_failure_is_free() -> None:
    """After the first failure the delay is zero."""
    assert [0.0, 0.0] == [Backoff(lambda: 0.5).next_delay(prompt=prompt) for prompt in (True, False)]


@given(st.lists(st.tuples(st.floats(0, HEALTHY_AFTER, exclude_max=True), CHANCES)))
def test_delays_stay_within_their_ceiling(failures: list[tuple[float, float]]) -> None:
    """Each calm delay lies between half the first ceiling and a ceiling that doubles up to the cap."""
    chances = iter([chance for _, chance in failures])
    backoff = Backoff(lambda: next(chances))
    for number, (lived, _) in enumerate(failures):
        delay = backoff.next_delay(lived=lived)
        if number:
            assert FIRST_CEILING / 2 <= delay <= min(CAP, FIRST_CEILING * 2 ** (number - 1))


@given(st.lists(CHANCES, min_size=1, max_size=PROMPT_ATTEMPTS))
def test_prompt_delays_stay_short(chances: list[float]) -> None:
    """Each prompt delay lies within the upper half of a ceiling that doubles up to 0.3 seconds."""
    remaining = iter(chances)
    backoff = Backoff(lambda: next(remaining))
    backoff.next_delay(prompt=True)
    for number in range(len(chances)):
        ceiling = min(PROMPT_CAP, FIRST_CEILING * 2**number)
        assert ceiling / 2 <= backoff.next_delay(prompt=True) <= ceiling


@given(st.integers())
def test_prompt_attempts_are_bounded(seed: int) -> None:
    """An outage that lasts costs at most 255 attempts in its first minute, and at most 130 in ten later ones."""
    times = attempts(seed, until=720.0)
    assert sum(at < 60.0 for at in times) <= PROMPT_ATTEMPTS + 15
    assert sum(at >= 120.0 for at in times) <= 130


def test_prompt_attempts_are_spread() -> None:
    """When 200 connections were lost at the same moment, no 50 ms after the first second see twice the average."""
    slots = Counter(int(at / 0.05) for seed in range(200) for at in attempts(seed, until=10.0) if at >= 1.0)
    assert max(slots.values()) < 2 * sum(slots.values()) / 180


def test_prompt_attempts_do_not_lengthen_calm_delays() -> None:
    """After a minute of prompt attempts the calm delays begin with the first one."""
    backoff = Backoff(lambda: 0.999)
    for _ in range(PROMPT_ATTEMPTS + 1):
        assert backoff.next_delay(prompt=True) <= PROMPT_CAP
    delays = [backoff.next_delay(prompt=True) for _ in range(12)]
    assert delays == sorted(delays)
    assert delays[0] < FIRST_CEILING
    assert PROMPT_CAP < delays[3] < delays[-1] <= CAP


def test_health_starts_over() -> None:
    """A connection that lived long enough makes the next failure the first one."""
    backoff = Backoff(lambda: 0.99)
    for _ in range(9):
        backoff.next_delay()
    assert backoff.next_delay(lived=HEALTHY_AFTER) == 0.0
    assert backoff.failures == 1


@given(st.lists(st.floats(0, 60), min_size=1, max_size=500))
def test_a_budget_bounds_attempts(pauses: list[float]) -> None:
    """However many connections ask, they get no more prompt attempts than burst and rate allow."""
    budget, now, taken = AttemptBudget(), 100.0, 0
    for pause in pauses:
        now += pause
        taken += budget.take(now)
    assert taken <= BUDGET_BURST + BUDGET_RATE * (now - 100.0) + 1e-6


def test_a_budget_refills() -> None:
    """A budget that is used up has an attempt again after a moment, and the whole burst after some seconds."""
    budget = AttemptBudget()
    while budget.take(0.0):
        pass
    assert [True, False] == [budget.take(1.01 / BUDGET_RATE), budget.take(1.01 / BUDGET_RATE)]
    assert [True] * int(BUDGET_BURST) + [False] == [budget.take(60.0) for _ in range(int(BUDGET_BURST) + 1)]


def test_two_connections_do_not_use_up_a_budget() -> None:
    """Two connections of a program that retry promptly never wait for its budget."""
    budget = AttemptBudget()
    times = sorted(at for seed in range(2) for at in attempts(seed, until=40.0))
    assert all(budget.take(at) for at in times)

"""Facts about the delays between attempts."""

from hypothesis import given
from hypothesis import strategies as st

from relay_core.hyco.backoff import CAP, FIRST_CEILING, HEALTHY_AFTER, Backoff


def test_the_first_failure_is_free() -> None:
    """After the first failure there is no delay."""
    assert Backoff(lambda: 0.5).next_delay() == 0.0


@given(st.lists(st.tuples(st.floats(0, HEALTHY_AFTER, exclude_max=True), st.floats(0, 1, exclude_max=True))))
def test_delays_stay_within_their_ceiling(failures: list[tuple[float, float]]) -> None:
    """Each delay lies between half the first ceiling and a ceiling that doubles up to the cap."""
    chances = iter([chance for _, chance in failures])
    backoff = Backoff(lambda: next(chances))
    for number, (lived, _) in enumerate(failures):
        delay = backoff.next_delay(lived=lived)
        if number:
            assert FIRST_CEILING / 2 <= delay <= min(CAP, FIRST_CEILING * 2 ** (number - 1))


def test_health_starts_over() -> None:
    """A connection that lived long enough makes the next failure the first one."""
    backoff = Backoff(lambda: 0.99)
    for _ in range(9):
        backoff.next_delay()
    assert backoff.next_delay(lived=HEALTHY_AFTER) == 0.0
    assert repr(backoff) == "<Backoff failures=1>"

"""Facts about the figures of a watch."""

import pytest

from tests.bench.figures.watch import (
    NAN,
    ONE,
    PLAIN,
    REACHED,
    TWO,
    UNCHECKED,
    UNREACHED,
    from_hits,
    hot_line,
    training_steps,
)


def test_checks_are_also_left_out():
    """A watch is judged without its checks, whose time is shown; a noisy round changes no ratio."""
    steps = {PLAIN: 0.1, UNREACHED: 0.1, NAN: 0.104, UNCHECKED: 0.1}
    noisy = {name: 2 * seconds for name, seconds in steps.items()}
    step, checks = training_steps([steps, noisy, steps])
    assert pytest.approx({PLAIN: 100, UNREACHED: 100, NAN: 104, UNCHECKED: 100}) == step.values
    assert {UNREACHED: True, UNCHECKED: True} == {name: step.met(name) for name in step.limits}
    assert pytest.approx({NAN: 4}) == checks.values


def test_what_a_hit_adds():
    """It is the difference from a call without a watch."""
    call, added = hot_line([{PLAIN: 50e-9, UNREACHED: 50e-9, REACHED: 500e-9}])
    assert pytest.approx(10) == call.ratio(REACHED)
    assert (pytest.approx(450), True) == (added.values[REACHED], added.met(REACHED))


def test_hits_may_take_a_round_trip_longer():
    """The limit grows with the round trip of the link."""
    median, worst, _ = from_hits({ONE: [0.1, 0.16, 0.2], TWO: [0.2]}, 120)
    assert {ONE: True, TWO: False} == {name: median.met(name) for name in (ONE, TWO)}
    assert pytest.approx({ONE: 200, TWO: 200}) == worst.values

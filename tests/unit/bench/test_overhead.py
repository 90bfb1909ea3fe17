"""Facts about the figure that shows what a debugger costs."""

import pytest

from tests.bench.figures.overhead import STATES, Work, line_of, row_of
from tests.bench.workloads import ELSEWHERE, SCRIPT


def rounds(**others):
    """Return two rounds, a quiet one and a noisy one, in which all states but `others` are as fast as the first."""
    return [{name: noise * others.get(name, 1.0) for name in STATES} for noise in (0.2, 0.5)]


def test_turns_of_a_round_are_compared():
    """A noisy round changes no ratio; the time is the quietest turn's, for doing the work once."""
    row = row_of(Work("loop", "tight_loop", 1_000_000, 1), rounds(**{"debugpy.listen": 4.0}))
    assert pytest.approx(200) == row.values["never imported"]
    assert pytest.approx(4) == row.ratio("debugpy.listen")


def test_a_slow_state_need_not_take_part_in_every_round():
    """It is compared where it did."""
    quiet, noisy = rounds(**{"debugpy.listen": 4.0})
    row = row_of(Work("loop", "tight_loop", 1, 1), [quiet, {"never imported": 0.1}, noisy])
    assert pytest.approx(4) == row.ratio("debugpy.listen")
    assert pytest.approx(8) == row.detail["ratios of the best turns"]["debugpy.listen"]


def test_what_nobody_should_notice():
    """The promise is for jobs that nobody debugs, and compares with a process that knows nothing of debugging."""
    row = row_of(Work("loop", "tight_loop", 1, 1), rounds(**{"detached again": 1.06}))
    assert {"not a debug run": True, "armed on demand": True, "detached again": False} == {
        name: row.met(name) for name in row.limits
    }
    assert "never imported" == next(iter(STATES))


def test_breakpoint_has_one_place():
    """The line for a breakpoint is there, once."""
    lines = SCRIPT.read_text().splitlines()
    assert ELSEWHERE == lines[line_of(ELSEWHERE, lines) - 1].strip()
    assert 1 == [line.strip() for line in lines].count(ELSEWHERE)

"""Facts about the figure of a debugger's step."""

import pytest

from tests.bench.figures.stepping import KINDS, PROMPT, rows_of

WAYS = {"direct": [0.050], "rendezvous": [0.013], "tunnel": [0.014, 0.012, 0.013], PROMPT: [0.008]}


def test_what_a_way_adds():
    """The tunnel's median is compared with what debugpy needs when nothing makes it wait."""
    *_, added = rows_of(dict.fromkeys(KINDS, WAYS))
    assert pytest.approx({"rendezvous": 5, "tunnel": 5}) == added.values


def test_limits():
    """All is judged but the time in which the line runs."""
    fast = {name: [0.009] for name in WAYS}
    rows = rows_of(dict.fromkeys(KINDS, fast) | {"whole": WAYS})
    assert [None, True, True, False, True, True] == [row.met("tunnel") for row in rows]


def test_with_a_network_between_there_is_no_limit():
    """Then debugpy's own time is not known either."""
    ways = {name: seconds for name, seconds in WAYS.items() if name != PROMPT}
    assert [None] * len(KINDS) == [row.met("tunnel") for row in rows_of(dict.fromkeys(KINDS, ways))]

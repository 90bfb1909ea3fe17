"""Facts about the figure of a debugger's step."""

import pytest

from tests.bench.figures.stepping import PROMPT, rows_of

WHOLE = {"direct": [0.050], "rendezvous": [0.013], "tunnel": [0.014, 0.012, 0.013], PROMPT: [0.008]}


def test_what_a_way_adds():
    """The tunnel's median is compared with what debugpy needs when nothing makes it wait, and both are judged."""
    step, shown, together, added = rows_of({name: [0.001] for name in WHOLE}, {name: [0.009] for name in WHOLE}, WHOLE)
    assert pytest.approx({"rendezvous": 5, "tunnel": 5}) == added.values
    assert [None, True, False, True] == [row.met("tunnel") for row in (step, shown, together, added)]


def test_with_a_network_between_there_is_no_limit():
    """Then debugpy's own time is not known either."""
    whole = {name: seconds for name, seconds in WHOLE.items() if name != PROMPT}
    assert [None, None, None] == [row.met("tunnel") for row in rows_of(whole, whole, whole)]

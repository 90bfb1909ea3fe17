"""Facts about durations and ranks."""

import pytest

from relay_client.ui.text import duration, exact_duration, format_ranks
from relay_core.value_parsers import parse_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (250, "4 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400, "1 day"),
        (300000, "3 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """A duration has one or two units."""
    assert text == duration(seconds)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("0.5", "0.5 s"),
        ("1", "1 s"),
        ("90s", "90 s"),
        ("60m", "1 h"),
        ("90m", "90 min"),
        ("1.5h", "90 min"),
        ("25h", "25 h"),
        ("3601", "3601 s"),
        ("4294967", "4294967 s"),
    ],
)
def test_chosen_durations(typed: str, text: str) -> None:
    """A duration that somebody has chosen is shown without rounding."""
    assert text == exact_duration(parse_duration(typed))


def test_lists_of_ranks() -> None:
    """A single rank has no plural; several are joined into ranges."""
    assert ["rank 3", "ranks 0-2,5"] == [format_ranks([3]), format_ranks([5, 1, 0, 2])]

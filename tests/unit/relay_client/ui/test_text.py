"""Facts about durations and ranks."""

import pytest

from relay_client.ui.text import duration, format_ranks


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


def test_lists_of_ranks() -> None:
    """A single rank has no plural; several are joined into ranges."""
    assert ["rank 3", "ranks 0-2,5"] == [format_ranks([3]), format_ranks([5, 1, 0, 2])]

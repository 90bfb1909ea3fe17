"""Facts about durations, ranks and texts from other machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.ui.text import MAX_TEXT, duration, format_ranks, printable


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


@given(st.text(max_size=2000))
def test_any_text_becomes_one_safe_line(text: str) -> None:
    """Any text becomes one printable line of limited length."""
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= MAX_TEXT


def test_terminal_escapes_are_removed() -> None:
    """Control codes and line breaks become spaces."""
    assert "ValueError: [31mbad value" == printable("ValueError:\n\x1b[31mbad  value\n")


def test_other_values_are_empty() -> None:
    """Numbers, lists and null become an empty text."""
    assert ["", "", ""] == [printable(None), printable(5), printable(["a"])]


def test_lists_of_ranks() -> None:
    """A single rank has no plural; several are joined into ranges."""
    assert ["rank 3", "ranks 0-2,5"] == [format_ranks([3]), format_ranks([5, 1, 0, 2])]

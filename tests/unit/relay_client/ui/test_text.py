"""Facts about how times and foreign texts are worded."""

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
    """A time span is told in one or two units."""
    assert text == duration(seconds)


@given(st.text(max_size=2000))
def test_foreign_texts_are_one_harmless_line(text: str) -> None:
    """Whatever a text contains, what is shown is one printable line of bounded length."""
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= MAX_TEXT


def test_a_terminal_escape_does_not_pass() -> None:
    """Control codes and line breaks become blanks."""
    assert "ValueError: [31mbad value" == printable("ValueError:\n\x1b[31mbad  value\n")


def test_what_is_no_text_is_empty() -> None:
    """Numbers and null are no text."""
    assert ["", "", ""] == [printable(None), printable(5), printable(["a"])]


def test_ranks_in_words() -> None:
    """One rank is a rank; several are joined to ranges."""
    assert ["rank 3", "ranks 0-2,5"] == [format_ranks([3]), format_ranks([5, 1, 0, 2])]

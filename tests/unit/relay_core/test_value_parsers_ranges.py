"""Facts about lists of numbers with ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import UsageError
from relay_core.value_parsers import expand_ranges, format_ranges, parse_ranges


def parse(text: str) -> list[range]:
    return parse_ranges(text, what="list of ranks", example="0,3-5")


def test_ranges_are_read_in_the_order_written() -> None:
    """Blanks do not matter, overlaps are left to the caller."""
    assert [range(5, 6), range(3, 5), range(3, 4)] == parse(" 5 , 3 - 4,3")


@pytest.mark.parametrize(
    "text",
    ["", " ", ",", "0,", "-1", "1-", "-", "1-2-3", "1.5", "+1", "1e3", "all", "0 1", "0;1", "\u0663", "1" * 5000],
)
def test_invalid_lists(text: str) -> None:
    """What does not follow the grammar is refused, and a long text is cut."""
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert (f"invalid list of ranks: '{text[:80]}'", "use 0,3-5") == (caught.value.sentence, caught.value.hint)


def test_a_range_that_starts_above_its_end() -> None:
    """It is refused, and the hint turns it round."""
    with pytest.raises(UsageError, match=r"invalid list of ranks: '5-3' is in reverse order. hint: use 3-5"):
        parse("0,5-3")


def test_a_range_that_lacks_a_digit() -> None:
    """The hint does not turn round a range of thousands of numbers."""
    with pytest.raises(UsageError, match=r"'5678-567' is in reverse order. hint: use a second number of at least 5678"):
        parse("5678-567")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("1,0-1", "1 is listed twice"), ("0-3", "more than 3 numbers"), ("0-999999999", "more than 3 numbers")],
)
def test_what_cannot_be_expanded(text: str, sentence: str) -> None:
    """A number twice and too many numbers are refused, however large a range is."""
    with pytest.raises(UsageError, match=sentence):
        expand_ranges(parse(text), what="list of ranks", limit=3)


@given(st.lists(st.integers(0, 10**9 - 1), min_size=1, max_size=50, unique=True))
def test_format_is_the_inverse(numbers: list[int]) -> None:
    """What is formatted reads back the same."""
    assert numbers == expand_ranges(parse(format_ranges(numbers)), what="list", limit=50)

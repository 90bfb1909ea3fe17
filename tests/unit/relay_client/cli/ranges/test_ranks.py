"""Facts about the grammar of --ranks."""

import pytest

from relay_client.cli.ranges.ranks import MAX_RANKS, parse_ranks
from relay_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("3", [3]), ("0-2", [0, 1, 2]), (" 0 , 3-4 ", [0, 3, 4]), (f"0-{MAX_RANKS - 1}", list(range(MAX_RANKS)))],
)
def test_good_lists(text: str, ranks: list[int]) -> None:
    """Ranks and ranges keep their order."""
    assert ranks == parse_ranks(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("7-0", "invalid list of ranks: '7-0' starts above its end"),
        ("all", "invalid list of ranks: 'all'"),
        ("", "invalid list of ranks: ''"),
        ("1,", "invalid list of ranks: '1,'"),
        ("1,0-1", "invalid list of ranks: 1 is listed twice"),
        (f"0-{MAX_RANKS}", "invalid list of ranks: more than 1024 numbers"),
        ("0-999999", "invalid list of ranks: more than 1024 numbers"),
    ],
)
def test_bad_lists(text: str, sentence: str) -> None:
    """Invalid lists are rejected with one sentence and a hint."""
    with pytest.raises(UsageError) as caught:
        parse_ranks(text)
    assert sentence == caught.value.sentence
    assert caught.value.hint

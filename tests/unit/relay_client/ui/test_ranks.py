"""Facts about the grammar of --ranks."""

import pytest

from relay_client.ui.ranks import MAX_RANKS, format_ranks, parse_ranks
from relay_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("3", [3]), ("0-2", [0, 1, 2]), (" 0 , 3-4 ", [0, 3, 4]), (f"0-{MAX_RANKS - 1}", list(range(MAX_RANKS)))],
)
def test_good_lists(text: str, ranks: list[int]) -> None:
    """Ranks and ranges are read in the order written."""
    assert ranks == parse_ranks(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("7-0", "runs backwards"),
        ("all", "no list of ranks"),
        ("", "no list of ranks"),
        ("1,", "no list of ranks"),
        ("1,0-1", "twice"),
        (f"0-{MAX_RANKS}", "more than 1024 ranks"),
        ("0-999999", "more than 1024 ranks"),
    ],
)
def test_bad_lists(text: str, sentence: str) -> None:
    """Nonsense is refused with one sentence and a hint."""
    with pytest.raises(UsageError, match=sentence) as caught:
        parse_ranks(text)
    assert caught.value.hint


def test_ranks_are_told_in_runs() -> None:
    """One rank is a rank, several are joined to runs."""
    assert ["rank 3", "ranks 0-2,5"] == [format_ranks([3]), format_ranks([5, 1, 0, 2])]

"""Facts about grouping values by a key."""

from relay_core.grouping import by_key


def test_keys_and_values_keep_their_order() -> None:
    """Keys are in the order in which they first occur, and the values of each key in theirs; none is lost."""
    found = by_key([("b", 1), ("a", 2), ("b", 1), ("b", 0)])
    assert [("b", [1, 1, 0]), ("a", [2])] == list(found.items())


def test_without_pairs_there_are_no_groups() -> None:
    """An empty result, not a missing one."""
    assert {} == by_key([])

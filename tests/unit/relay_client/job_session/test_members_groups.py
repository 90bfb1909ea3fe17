"""Facts about the ranks that move together."""

import pytest

from relay_client.job_session.members import Group
from relay_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "group", "shown"),
    [
        ("all", Group(), "all ranks"),
        (" here ", Group(is_here=True), "the ranks at the same place"),
        ("3", Group(frozenset({3})), "rank 3"),
        ("0,3-5", Group(frozenset({0, 3, 4, 5})), "ranks 0,3-5"),
    ],
)
def test_groups(text: str, group: Group, shown: str) -> None:
    """A group is read as users write it, and shown as text."""
    assert (group, shown) == (Group.parse(text), str(Group.parse(text)))


@pytest.mark.parametrize("text", ["", "x", "5-3", "0,0", "ALL"])
def test_what_is_not_a_group(text: str) -> None:
    """Anything else is refused with the grammar as a hint."""
    with pytest.raises(UsageError, match="invalid group of ranks"):
        Group.parse(text)

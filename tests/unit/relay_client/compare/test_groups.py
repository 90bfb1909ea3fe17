"""Facts about the grouping of ranks by a value."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from relay_client.compare.groups import label, odd_ones_first, shared_ranks
from relay_core.agent_api.evaluation import Difference, Value
from relay_core.agent_api.members import Member


def value(text: str, *ranks: int, **fields: object) -> Value:
    return Value(tuple(Member(5678 + rank, rank) for rank in ranks), text, **fields)


def test_odd_one_is_first():
    """The rarest value comes first, whichever node it is on; those of several nodes are one group."""
    found = [value("1", 0, 2), value("2", 5), value("1", 4, 3)]
    assert [("2", "rank 5"), ("1", "ranks 0,2-4")] == [(g.text, label(g.members)) for g in odd_ones_first(found)]


def test_failures_are_rows():
    """A rank without a value, and a node without a response, come before all values."""
    silent = value("", 7, error="no answer within 6 s", is_silent=True)
    found = odd_ones_first([value("1", 0), silent, Value(text="c", error="it is gone", is_silent=True)])
    assert [("it is gone", "c"), ("no answer within 6 s", ""), ("", "1")] == [(g.error, g.text) for g in found]


def test_place_does_not_count():
    """Ranks that stand at different lines are one group if their values are equal."""
    found = [value("1", 0, place="step a.py:1"), value("1", 1, place="step a.py:2")]
    assert [("1", "")] == [(g.text, g.place) for g in odd_ones_first(found)]


def test_difference_is_kept():
    """A group has the difference that any of the nodes has found."""
    found = Difference("w", element=3, other="d")
    values = [value("1", 0), value("1", 1, difference=found)]
    assert [found] == [group.difference for group in odd_ones_first(values)]


def test_equal_texts_of_different_bits():
    """Groups that print the same are shown with all digits, or with their checksums if no digit is shown."""
    odd, usual = (value("tensor(0.3)", 0, digest="aa", in_full="0.30001"), value("tensor(0.3)", 1, 2, digest="bb"))
    assert ["0.30001", "0.30002"] == [g.text for g in odd_ones_first([odd, replace(usual, in_full="0.30002")])]
    large = [value("T[9]", rank, digest=digest, in_full="T[9]") for rank, digest in enumerate(("aa", "bb"))]
    assert ["T[9] (checksum aa)", "T[9] (checksum bb)"] == [g.text for g in odd_ones_first(large)]
    assert ["tensor(0.3)"] == [g.text for g in odd_ones_first([odd])]


def test_label_without_ranks():
    """A process without a rank is named by its port."""
    assert "rank 0, port 6000" == label([Member(5678, 0), Member(6000)])


def test_ranks_of_several_jobs():
    """A rank that two jobs have is named with its port; a rank that only one of them has is not."""
    groups = [Value((Member(5678, 0), Member(5679, 1)), "1"), Value((Member(6000, 0),), "2")]
    shared = shared_ranks(groups)
    assert {0} == shared
    assert ["ranks 0-1 (ports 5678-5679)", "rank 0 (port 6000)"] == [label(group.members, shared) for group in groups]
    assert "rank 1" == label([Member(5679, 1)], shared)
    assert "rank 0 (ports 5678,6000)" == label([Member(5678, 0), Member(6000, 0)], shared)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=20))
def test_nothing_is_lost(found: list[tuple[str, int]]):
    """Each rank is in exactly one group, with its own value; groups ascend in size."""
    groups = odd_ones_first(
        value(text, rank) for at in range(4) for rank, (text, node) in enumerate(found) if at == node
    )
    assert dict(enumerate(text for text, _ in found)) == {m.rank: g.text for g in groups for m in g.members}
    assert len(groups) == len({text for text, _ in found})
    sizes = [len(group.members) for group in groups]
    assert sizes == sorted(sizes)

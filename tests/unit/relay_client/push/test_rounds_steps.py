"""Facts about which ranks are known to be at the same step."""

from hypothesis import given
from hypothesis import strategies as st

from relay_client.push.rounds import at_same_step, highest_counts, is_behind, next_counts
from relay_core.agent_api.members import Member
from relay_core.agent_api.push import Pushed, State

WORLD, LEFT, RIGHT = "0 0-3", "1 0-1", "2 2-3"


def held(ranks: list[int], counts: dict[str, int], before: dict[str, int]) -> Pushed:
    """Return the result of ranks that are held, with their counts now and at their last call."""
    return Pushed(
        tuple(Member(5678 + rank, rank) for rank in ranks), State.HELD, place="f", counts=counts, before=before
    )


def steps(*results: Pushed) -> list[list[int]]:
    return sorted(sorted(member.rank or 0 for member in group) for group in at_same_step(results))


def test_first_call_since_the_same_operation() -> None:
    """Ranks with equal counts are at the same step if they are at their first call since then."""
    first, later = held([0, 2], {WORLD: 42}, {WORLD: 41}), held([1], {WORLD: 42}, {WORLD: 42})
    assert [[0, 1, 2]] == steps(first, held([1], {WORLD: 42}, {WORLD: 30}))
    assert [[0], [1], [2]] == steps(first, later)
    assert [[0], [1], [2]] == steps(first, held([1], {WORLD: 43}, {WORLD: 42}))
    assert {WORLD: 43} == next_counts([first, later])


def test_stages_of_a_pipeline() -> None:
    """Ranks without a common group that is used in each step cannot be compared."""
    left = held([0, 1], {WORLD: 1, LEFT: 500}, {WORLD: 1, LEFT: 499})
    right = held([2, 3], {WORLD: 1, RIGHT: 24}, {WORLD: 1, RIGHT: 23})
    assert [[0, 1], [2, 3]] == steps(left, right)
    assert {} == next_counts([left, right])
    assert {LEFT: 501, RIGHT: 24} == next_counts([left, held([2, 3], {WORLD: 1, RIGHT: 23}, {WORLD: 1, RIGHT: 23})])
    assert {WORLD: 41} == next_counts(
        [held([0, 1], {WORLD: 40, LEFT: 500}, {}), held([2, 3], {WORLD: 40, RIGHT: 90}, {})]
    )


def test_rank_that_connects_others() -> None:
    """Ranks in a mesh are compared through the ranks that are in a group with each of them."""
    rows, columns = {0: "r 0-1", 1: "r 0-1", 2: "r 2-3", 3: "r 2-3"}, {0: "c 0,2", 1: "c 1,3", 2: "c 0,2", 3: "c 1,3"}

    def at(rank: int, now: int, then: int) -> Pushed:
        names = rows[rank], columns[rank]
        return held([rank], dict.fromkeys(names, now), dict.fromkeys(names, then))

    assert [[0, 1, 2, 3]] == steps(*(at(rank, 6, 5) for rank in range(4)))
    assert {"c 0,2": 7, "c 1,3": 7, "r 0-1": 7} == next_counts([at(rank, 6, 6) for rank in range(4)])


def test_ranks_without_counts() -> None:
    """A rank that does not count its operations has no target, and is compared with none; one rank needs neither."""
    without = held([0, 1], {}, {})
    assert [[0], [1]] == steps(without)
    assert {} == next_counts([without])
    assert {} == highest_counts([without, held([2], {WORLD: 3}, {})], {})
    assert {} == highest_counts([held([2], {WORLD: 0}, {})], {})
    assert not is_behind(without, {WORLD: 3})
    assert [[5]] == steps(held([5], {}, {}))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=2, max_size=6), st.integers(1, 5))
def test_nothing_wrong_is_known(calls: list[tuple[int, int]], period: int) -> None:
    """Whatever ranks do, those that are known to be at the same step are at the same call.

    Each rank has begun one operation in every `period` calls. It is held at a call, some calls after the hold began.
    """
    results = []
    for rank, (start, number) in enumerate(calls):
        call, before = start + number, start if number == 1 else start + number - 1
        results.append(held([rank], {WORLD: call // period}, {WORLD: before // period}))
    at = {rank: start + number for rank, (start, number) in enumerate(calls)}
    for group in at_same_step(results):
        assert 1 == len({at[member.rank] for member in group if member.rank is not None})

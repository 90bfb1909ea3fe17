"""Facts about the name `RANK` in conditions and logpoints."""

import pytest

from relay_client.job_session.breakpoints import for_rank


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("RANK == 3", "3 == 3"),
        ("RANK in (0, 3) and loss > 10", "3 in (0, 3) and loss > 10"),
        ("self.RANK == 3", "self.RANK == 3"),
        ("name == 'RANK'", "name == 'RANK'"),
        ("WORLD_RANK == 3", "WORLD_RANK == 3"),
        ("f(RANK=1)", "f(RANK=1)"),
        ("any((RANK := step) for _ in range(3))", "any((RANK := step) for _ in range(3))"),
        ("(lambda RANK: RANK)(1)", "(lambda RANK: RANK)(1)"),
        ("RANK ==", "RANK =="),
    ],
)
def test_a_condition_has_the_number_of_the_rank(condition: str, expected: str) -> None:
    """Only the free name is replaced; what is invalid is left to the debugger."""
    assert {"line": 1, "condition": expected} == for_rank({"line": 1, "condition": condition}, 3)


def test_a_logpoint_has_the_number_of_the_rank() -> None:
    """The name is replaced in expressions only, not in the text between them."""
    found = for_rank({"line": 1, "logMessage": "RANK {RANK}: {loss[RANK]} {x}"}, 3)
    assert {"line": 1, "logMessage": "RANK {3}: {loss[3]} {x}"} == found


def test_a_process_without_rank_keeps_the_name() -> None:
    """A breakpoint for a process without a rank passes unchanged."""
    assert {"line": 1, "condition": "RANK == 3"} == for_rank({"line": 1, "condition": "RANK == 3"}, None)

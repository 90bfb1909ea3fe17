"""Facts about the processes that a request is for, and those that share one result."""

import pytest

from relay_core.agent_api.members import Member, describe_ranks, grouped, selects_port, selects_rank
from relay_core.agent_api.push import Pushed, State
from relay_core.errors import UsageError
from relay_core.records import encode, parse


def test_members_of_a_message() -> None:
    """A member is its port, and its rank if it has one; anything else is left out."""
    members = (Member(5678, 0), Member(5679))
    assert {"members": [[5678, 0], [5679]]} == encode(Pushed(members))
    assert members == parse(Pushed, {"members": [[5678, 0], [5679]]}).members
    assert (Member(5678),) == parse(Pushed, {"members": [[5678, "x"], [0, 1], "x", None, []]}).members


@pytest.mark.parametrize(
    ("ranks", "rank", "is_selected"),
    [("all", None, True), ("all", 7, True), ("0,3-5", 4, True), ("0,3-5", 2, False), ("0,3-5", None, False)],
)
def test_selected_ranks(ranks: str, rank: int | None, is_selected: bool) -> None:
    """`all` selects every process, and a list only those that have one of its ranks."""
    assert is_selected is selects_rank(ranks, rank)


@pytest.mark.parametrize(
    ("ports", "port", "is_selected"),
    [("", 5678, True), ("5678", 5678, True), ("5678,5690-5693", 5692, True), ("5678,5690-5693", 5679, False)],
)
def test_selected_ports(ports: str, port: int, is_selected: bool) -> None:
    """A list selects its ports, and an empty one all."""
    assert is_selected is selects_port(ports, port)


@pytest.mark.parametrize(("ranks", "text"), [("all", "all ranks"), ("3", "rank 3"), ("0,3-5", "ranks 0,3-5")])
def test_ranks_in_a_log_line(ranks: str, text: str) -> None:
    """A log line names all ranks, one rank or several."""
    assert text == describe_ranks(ranks)


def test_an_invalid_list() -> None:
    """An invalid list is an error, for a process without a rank as well."""
    with pytest.raises(UsageError, match="invalid list of ranks"):
        selects_rank("3-", None)
    with pytest.raises(UsageError, match="invalid list of ports"):
        selects_port("5678-", 5678)


def test_equal_results_once() -> None:
    """Equal results are one, with the processes of all."""
    results = [Pushed((Member(port),), State.READY) for port in (1, 2)] + [Pushed((Member(3),), error="e")]
    assert [(Member(1), Member(2)), (Member(3),)] == [result.members for result in grouped(results)]

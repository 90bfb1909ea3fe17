"""Facts about the grammars of --ports and --ranks."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.ui.text import MAX_PORTS, MAX_RANKS, parse_ports, parse_ranks
from relay_core.errors import UsageError
from relay_core.value_parsers import format_ranges


@pytest.mark.parametrize(
    ("parse", "text", "numbers"),
    [
        (parse_ports, "5678", [5678]),
        (parse_ports, "5678-5680", [5678, 5679, 5680]),
        (parse_ports, "5678,5690", [5678, 5690]),
        (parse_ports, " 5690 , 5678-5679 ", [5690, 5678, 5679]),
        (parse_ports, "1-1", [1]),
        (parse_ports, "65535", [65535]),
        (parse_ranks, "3", [3]),
        (parse_ranks, "0-2", [0, 1, 2]),
        (parse_ranks, " 0 , 3-4 ", [0, 3, 4]),
        (parse_ranks, f"0-{MAX_RANKS - 1}", list(range(MAX_RANKS))),
    ],
)
def test_good_list(parse: Callable[[str], list[int]], text: str, numbers: list[int]) -> None:
    """Numbers and ranges keep their order."""
    assert numbers == parse(text)


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (parse_ports, "5680-5678", "'5680-5678' is in reverse order"),
        (parse_ports, "80-70000", "'80-70000' is outside 1-65535"),
        (parse_ports, "0", "'0' is outside 1-65535"),
        (parse_ports, "abc", "'abc'"),
        (parse_ports, "", "''"),
        (parse_ports, "5678-", "'5678-'"),
        (parse_ports, "-5678", "'-5678'"),
        (parse_ports, "5678-5679-5680", "'5678-5679-5680'"),
        (parse_ports, "٥", "'٥'"),
        (parse_ports, "5678,5678", "5678 is listed twice"),
        (parse_ports, "5678,5670-5680", "5678 is listed twice"),
        (parse_ports, f"1-{MAX_PORTS + 1}", "more than 1024 numbers"),
        (parse_ranks, "7-0", "'7-0' is in reverse order"),
        (parse_ranks, "all", "'all'"),
        (parse_ranks, "", "''"),
        (parse_ranks, "1,", "'1,'"),
        (parse_ranks, "1,0-1", "1 is listed twice"),
        (parse_ranks, f"0-{MAX_RANKS}", "more than 1024 numbers"),
        (parse_ranks, "0-999999", "more than 1024 numbers"),
    ],
)
def test_bad_list(parse: Callable[[str], list[int]], text: str, reason: str) -> None:
    """Invalid lists are rejected with one sentence and a hint."""
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert f"invalid list of {'ports' if parse is parse_ports else 'ranks'}: {reason}" == caught.value.sentence
    assert caught.value.hint


@given(st.lists(st.integers(1, 65535), min_size=1, max_size=50, unique=True))
def test_format_is_the_inverse(ports: list[int]) -> None:
    """Parsing a formatted list gives the same ports."""
    assert ports == parse_ports(format_ranges(ports))


@given(st.text(alphabet="0123456789-, "))
def test_any_text_gives_ports_or_a_usage_error(text: str) -> None:
    """Any text gives valid ports or a UsageError."""
    try:
        ports = parse_ports(text)
    except UsageError:
        return
    assert all(1 <= port <= 65535 for port in ports)

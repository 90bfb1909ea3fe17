"""Facts about the grammars of --ports and --ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.ui.text import MAX_PORTS, MAX_RANKS, parse_ports, parse_ranks
from relay_core.errors import UsageError
from relay_core.value_parsers import format_ranges


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("5678", [5678]),
        ("5678-5680", [5678, 5679, 5680]),
        ("5678,5690", [5678, 5690]),
        (" 5690 , 5678-5679 ", [5690, 5678, 5679]),
        ("1-1", [1]),
        ("65535", [65535]),
    ],
)
def test_good_ports(text: str, ports: list[int]) -> None:
    """Ports and ranges keep their order."""
    assert ports == parse_ports(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("5680-5678", "'5680-5678' is in reverse order"),
        ("80-70000", "outside 1-65535"),
        ("0", "outside 1-65535"),
        ("abc", "invalid list of ports"),
        ("", "invalid list of ports"),
        ("5678-", "invalid list of ports"),
        ("-5678", "invalid list of ports"),
        ("5678-5679-5680", "invalid list of ports"),
        ("٥", "invalid list of ports"),
        ("5678,5678", "twice"),
        ("5678,5670-5680", "twice"),
        (f"1-{MAX_PORTS + 1}", "more than 1024 numbers"),
    ],
)
def test_bad_ports(text: str, sentence: str) -> None:
    """Invalid lists are rejected with one sentence and a hint."""
    with pytest.raises(UsageError, match=sentence) as caught:
        parse_ports(text)
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


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("3", [3]), ("0-2", [0, 1, 2]), (" 0 , 3-4 ", [0, 3, 4]), (f"0-{MAX_RANKS - 1}", list(range(MAX_RANKS)))],
)
def test_good_ranks(text: str, ranks: list[int]) -> None:
    """Ranks and ranges keep their order."""
    assert ranks == parse_ranks(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("7-0", "invalid list of ranks: '7-0' is in reverse order"),
        ("all", "invalid list of ranks: 'all'"),
        ("", "invalid list of ranks: ''"),
        ("1,", "invalid list of ranks: '1,'"),
        ("1,0-1", "invalid list of ranks: 1 is listed twice"),
        (f"0-{MAX_RANKS}", "invalid list of ranks: more than 1024 numbers"),
        ("0-999999", "invalid list of ranks: more than 1024 numbers"),
    ],
)
def test_bad_ranks(text: str, sentence: str) -> None:
    """Invalid lists are rejected with one sentence and a hint."""
    with pytest.raises(UsageError) as caught:
        parse_ranks(text)
    assert sentence == caught.value.sentence
    assert caught.value.hint

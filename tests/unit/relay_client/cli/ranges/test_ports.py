"""Facts about the grammar of --ports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.cli.ranges.ports import MAX_PORTS, parse_ports
from relay_core.errors import UsageError
from relay_core.ranges import format_ranges


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
def test_good_lists(text: str, ports: list[int]) -> None:
    """Ports and ranges keep their order."""
    assert ports == parse_ports(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("5680-5678", "'5680-5678' starts above its end"),
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
def test_bad_lists(text: str, sentence: str) -> None:
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

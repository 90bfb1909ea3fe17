"""Facts about the ports that `relay-agent serve` offers."""

import pytest

from relay_agent.agent.port_targets import PortTarget, parse_targets
from relay_core.errors import UsageError


@pytest.mark.parametrize(
    ("texts", "targets"),
    [
        (["5678"], {5678: PortTarget(5678, 5678)}),
        (["5678:40123"], {5678: PortTarget(5678, 40123)}),
        (["5678:[::1]:40123"], {5678: PortTarget(5678, 40123, host="::1")}),
        (["5678:127.0.0.2:5678"], {5678: PortTarget(5678, 5678, host="127.0.0.2")}),
        (["1", "65535:1"], {1: PortTarget(1, 1), 65535: PortTarget(65535, 1)}),
    ],
)
def test_ports_are_parsed(texts: list[str], targets: dict[int, PortTarget]) -> None:
    """A port may be offered under another number, and may be one of another loopback address."""
    assert targets == parse_targets(texts)


@pytest.mark.parametrize("texts", [["abc"], ["0"], ["70000"], ["5678:x"], ["5678", "5678:1"], ["٥"], ["5678:[::1]:x"]])
def test_bad_ports_are_refused(texts: list[str]) -> None:
    """Nonsense and repetition are usage errors with a hint."""
    with pytest.raises(UsageError) as caught:
        parse_targets(texts)
    assert caught.value.hint


@pytest.mark.parametrize(
    "address", ["", "::1", "[::1", "[]", "[::]", "10.0.0.4", "[2001:db8::1]", "localhost", "127.1", "0.0.0.0"]
)
def test_only_loopback_addresses_are_served(address: str) -> None:
    """An address that is not a loopback address, or not in the documented form, is a usage error."""
    with pytest.raises(UsageError, match="^invalid loopback address") as caught:
        parse_targets([f"5678:{address}:40123"])
    assert "5678:[::1]:40123" in caught.value.hint


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (PortTarget(5678, 5678), "5678"),
        (PortTarget(5678, 1), "5678 -> 1"),
        (PortTarget(5678, 1, host="::1"), "5678 -> [::1]:1"),
        (PortTarget(5678, 5678, host="127.0.0.2"), "5678 -> 127.0.0.2:5678"),
    ],
)
def test_a_target_is_shown_with_what_differs(target: PortTarget, text: str) -> None:
    """Log lines name the local port and address if they are not the usual ones."""
    assert text == str(target)

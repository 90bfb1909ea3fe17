"""Facts about the ports that `relay-agent serve` offers."""

import pytest

from relay_agent.agent.port_targets import PortTarget, parse_targets
from relay_core.errors import UsageError


@pytest.mark.parametrize(
    ("texts", "targets"),
    [
        (["5678"], {5678: PortTarget(5678, 5678)}),
        (["5678:40123"], {5678: PortTarget(5678, 40123)}),
        (["1", "65535:1"], {1: PortTarget(1, 1), 65535: PortTarget(65535, 1)}),
    ],
)
def test_ports_are_parsed(texts: list[str], targets: dict[int, PortTarget]) -> None:
    """A port may be offered under another number."""
    assert targets == parse_targets(texts)


@pytest.mark.parametrize("texts", [["abc"], ["0"], ["70000"], ["5678:x"], ["5678", "5678:1"], ["٥"]])
def test_bad_ports_are_refused(texts: list[str]) -> None:
    """Nonsense and repetition are usage errors with a hint."""
    with pytest.raises(UsageError) as caught:
        parse_targets(texts)
    assert caught.value.hint

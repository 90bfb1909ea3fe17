"""Facts about logical ports."""

import pytest

from relay_agent.settings.ranks import logical_port
from relay_core.errors import ConfigurationError


def test_each_rank_has_a_port_of_its_own() -> None:
    """The port of rank 0 is `--debug-port`, and the others follow it."""
    assert [5678, 5679, 5741] == [logical_port(5678, rank) for rank in (0, 1, 63)]


def test_the_last_port() -> None:
    """A rank whose port would be above 65535 has none, because clients would ignore it."""
    assert 65535 == logical_port(65530, 5)
    with pytest.raises(ConfigurationError, match=r"rank 6 has no port: 65530 \+ 6 is above 65535.*lower --debug-port"):
        logical_port(65530, 6)

"""Facts about logical ports."""

from relay_agent.ranks.logical_port import logical_port


def test_each_rank_has_a_port_of_its_own() -> None:
    """The port of rank 0 is `--debug-port`, and the others follow it."""
    assert [5678, 5679, 5741] == [logical_port(5678, rank) for rank in (0, 1, 63)]

"""Facts about the ranks and ports that `relay-client init` configures."""

import pytest

from relay_client.editor_setup.entries import Entry, entries_for, entries_of
from relay_core.agent_api.announcement import TargetInfo
from relay_core.errors import UsageError


@pytest.mark.parametrize(
    ("ports", "ranks", "entries"),
    [
        (None, None, [("rank 0", 5678)]),
        ([7000, 7002], None, [("rank 0", 7000), ("rank 1", 7002)]),
        (None, [4, 5], [("rank 4", 5682), ("rank 5", 5683)]),
        ([7000, 7001], [4, 5], [("rank 4", 7000), ("rank 5", 7001)]),
    ],
)
def test_ports_and_ranks(ports, ranks, entries) -> None:
    """Ports belong to ranks in order, from 0 by default; without ports, rank n has 5678 plus n."""
    assert entries == entries_for(ports, ranks)


def test_names() -> None:
    """An editor shows which rank an entry attaches to."""
    assert "Relay: rank 3" == Entry("rank 3", 5681).name


@pytest.mark.parametrize(
    ("ports", "ranks", "sentence"),
    [
        ([5678], [0, 1], "--ranks has 2 ranks, but --ports has 1 ports"),
        (None, [0, 60_000], "rank 60000 would have port 65678, but the highest port is 65535"),
    ],
)
def test_ports_and_ranks_that_do_not_fit(ports, ranks, sentence) -> None:
    """Each rank needs a port that exists."""
    with pytest.raises(UsageError, match=sentence):
        entries_for(ports, ranks)


def test_targets() -> None:
    """Registered processes are listed by rank; a label that occurs twice has the port in it."""
    targets = [
        TargetInfo(5690),
        TargetInfo(5679, rank=1),
        TargetInfo(5678, rank=0),
        TargetInfo(6678, rank=0),
        TargetInfo(5678, rank=0),
    ]
    assert [("rank 0 (5678)", 5678), ("rank 0 (6678)", 6678), ("rank 1", 5679), ("port 5690", 5690)] == entries_of(
        targets, None
    )
    assert [("rank 1", 5679)] == entries_of(targets, [1, 2])


@pytest.mark.parametrize(("targets", "ranks"), [([], None), ([TargetInfo(5678, rank=0)], [3])])
def test_no_target(targets, ranks) -> None:
    """Without a registered process there is nothing to configure, which is an error with a hint."""
    with pytest.raises(UsageError, match="no process is registered") as failure:
        entries_of(targets, ranks)
    assert "relay-client targets" in failure.value.hint

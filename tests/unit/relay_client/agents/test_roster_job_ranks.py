"""Facts about the ranks of a job that no agent has announced."""

from dataclasses import replace

from relay_client.agents.roster import MAX_ABSENT, AbsentRank, absent_ranks, held_elsewhere
from relay_core.agent_api.announcement import AgentId, AgentInfo, Attachment, Ending, State, TargetInfo


def node(*ranks: int, base: int = 5678, world: int | None = 4, endings: tuple[Ending, ...] = ()) -> AgentInfo:
    """Return the announcement of an agent with these ranks."""
    targets = tuple(TargetInfo(base + rank, rank=rank, world=world) for rank in ranks)
    return AgentInfo(AgentId(f"{base}-{ranks}"), targets=targets, endings=endings)


def not_found(*ranks: int, base: int = 5678, may_register: bool = True) -> tuple[AbsentRank, ...]:
    return tuple(AbsentRank(rank, base + rank, may_register=may_register) for rank in ranks)


def test_node_that_is_not_found() -> None:
    """The ranks below the announced world size that no agent has are not found."""
    assert not_found(0, 1) == absent_ranks([node(2, 3)])
    assert () == absent_ranks([node(2, 3), node(0, 1)])


def test_chosen_ranks() -> None:
    """Only chosen ranks count; one that no job can have is not found either, and will not register."""
    assert () == absent_ranks([node(2, 3)], {2, 3})
    assert not_found(1) == absent_ranks([node(2, 3)], {1, 2})
    assert not_found(9, may_register=False) == absent_ranks([node(0, 1, 2, 3)], {3, 9})


def test_ranks_that_have_ended() -> None:
    """A rank that has ended is known by how, unless it was started again."""
    endings = (Ending(5678, signal=9), Ending(5680, status=1), Ending(5690, status=1))
    ended = AbsentRank(0, 5678, "was killed by SIGKILL (the usual cause is lack of memory)", has_ended=True)
    assert (ended, *not_found(1)) == absent_ranks([node(2, 3, endings=endings)])


def test_jobs_on_one_hybrid_connection() -> None:
    """Each job has its own world size; a chosen rank is absent in each job that is large enough to have it."""
    agents = [node(0, 1), node(0, base=6000, world=1), node(0, 2, base=7000, world=3)]
    assert (*not_found(2, 3), *not_found(1, base=7000)) == absent_ranks(agents)
    assert not_found(2) == absent_ranks(agents, {0, 2})


def test_processes_without_a_world_size() -> None:
    """Ports without a rank, and ranks that announce no world size, belong to no job of a known size."""
    assert () == absent_ranks([AgentInfo(AgentId("a"), targets=(TargetInfo(5678), TargetInfo(5679)))])
    assert () == absent_ranks([node(0, 5, world=None)])
    assert () == absent_ranks([], {0})


def test_world_size_that_has_no_ports() -> None:
    """Ranks whose ports would be above the highest one are not counted, however large the announced number is."""
    assert not_found(1, 2, base=65533) == absent_ranks([node(0, base=65533, world=10**9)])


def test_worlds_of_many_jobs() -> None:
    """The number of absent ranks is limited, also if every process announces that it is one of 65,535 ranks."""
    jobs = AgentInfo(AgentId("a"), targets=tuple(TargetInfo(1 + n, rank=0, world=65535) for n in range(600)))
    assert MAX_ABSENT == len(absent_ranks([jobs]))
    assert MAX_ABSENT >= len(absent_ranks([jobs], range(1024)))


def test_ranks_that_are_held_on_other_nodes() -> None:
    """An agent needs to know only of jobs that it serves, and of ranks that another agent announces as held."""
    attached = replace(node(1), targets=(TargetInfo(5679, rank=1, attachment=Attachment("bob@laptop")),))
    waiting = replace(node(1), targets=(TargetInfo(5679, rank=1, state=State.WAITING),))
    others = [node(2, 3), node(0, 1, base=6000), node(2, 3, base=6000)]
    for held in attached, waiting:
        expected = {held.id: (), others[0].id: (5678,), others[1].id: (), others[2].id: ()}
        assert expected == held_elsewhere([held, *others])
    assert {each.id: () for each in others} == held_elsewhere(others)

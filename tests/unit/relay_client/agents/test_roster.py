"""Facts about which agent owns a port."""

from hypothesis import given
from hypothesis import strategies as st

from relay_client.agents.roster import AWAY_LIMIT, Destination, Roster
from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.agent_api.metadata import PortConflict

PORT = 5678


def agent(name: str, *ports: int, since: float | None = None, node: int | None = None, **fields: object) -> AgentInfo:
    targets = tuple(TargetInfo(port, pid=ord(name[0]), since=since) for port in ports)
    return AgentInfo(name, host=name, node_rank=node, targets=targets, **fields)


def owner(roster: Roster, now: float, port: int = PORT) -> str | None:
    claim = roster.owner(port, now)
    return claim.agent.id if claim else None


def test_a_port_belongs_to_the_agent_that_claims_it() -> None:
    """One claim, one owner; a port without a claim has none."""
    roster = Roster()
    assert roster.put(agent("a", PORT), 100) is None
    assert "a" == owner(roster, 100)
    assert owner(roster, 100, PORT + 1) is None


def test_former_targets() -> None:
    """A target that is no longer announced is kept as a former target until its port is reused or its agent removed."""
    roster = Roster()
    for ports, former in [((1, 2), []), ((2,), [1]), ((), [1, 2]), ((1,), [2])]:
        roster.put(agent("a", *ports), 100)
        assert former == [target.port for target in roster.former_targets("a")]
    roster.remove("a")
    assert [] == roster.former_targets("a")


def test_the_earlier_claim_wins_whichever_was_found_first() -> None:
    """The times that the agents announce decide, not the order of discovery; the later claim is a conflict."""
    roster = Roster()
    roster.put(agent("late", PORT, since=60), 100)
    roster.put(agent("early", PORT, since=50), 101)
    assert "early" == owner(roster, 102)
    (conflict,) = roster.conflicts(102)
    assert PortConflict(PORT, "early pid 101", "late pid 108") == conflict.report()
    assert [True, True, False] == [conflict.concerns(name) for name in ("early", "late", "other")]
    assert {("late", PORT): "early pid 101"} == roster.port_owners(102)


def test_without_times_the_first_agent_found_wins() -> None:
    """Claims without a time are in the order in which this client received them."""
    roster = Roster()
    for number, name in enumerate("abc"):
        roster.put(agent(name, PORT), 100 + number)
    assert "a" == owner(roster, 200)
    assert ["b", "c"] == [conflict.refused.agent.id for conflict in roster.conflicts(200)]


def test_a_claim_keeps_its_time_when_the_state_changes() -> None:
    """`since` belongs to the state; a claim is as old as its first announcement."""
    roster = Roster()
    roster.put(agent("a", PORT, since=50), 100)
    roster.put(agent("b", PORT, since=60), 100)
    before = roster.put(agent("a", PORT, since=99), 101)
    assert before == agent("a", PORT, since=50)
    assert "a" == owner(roster, 102)


def test_an_unreachable_agent_keeps_its_port() -> None:
    """Without another claim, a lost agent remains the owner."""
    roster = Roster()
    roster.put(agent("a", PORT), 100)
    roster.lost("a", 110)
    assert "a" == owner(roster, 110 + 10 * AWAY_LIMIT)


def test_an_unreachable_agent_loses_its_port_to_a_new_job() -> None:
    """A claim made after the owner was lost belongs to a restarted job, and takes the port."""
    roster = Roster()
    roster.put(agent("a", PORT, since=50), 100)
    roster.lost("a", 110)
    roster.put(agent("b", PORT, since=109), 111)
    assert "b" == owner(roster, 111)
    assert [] == roster.conflicts(111)


def test_a_competing_claim_has_to_wait() -> None:
    """An existing competing claim does not get the port while the owner merely changes its transport."""
    roster = Roster()
    roster.put(agent("a", PORT, since=50), 100)
    roster.put(agent("b", PORT, since=60), 100)
    roster.lost("a", 110)
    assert ["a", "b"] == [owner(roster, 110 + AWAY_LIMIT - 1), owner(roster, 110 + AWAY_LIMIT)]
    assert [] == roster.conflicts(111)
    roster.found("a")
    assert "a" == owner(roster, 200)
    assert 1 == len(roster.conflicts(200))


def test_a_removed_target_frees_its_port() -> None:
    """An agent does not serve targets that it no longer announces."""
    roster = Roster()
    roster.put(agent("a", PORT, PORT + 1), 100)
    roster.put(agent("b", PORT), 101)
    roster.put(agent("a", PORT + 1), 102)
    assert ["b", "a"] == [owner(roster, 103), owner(roster, 103, PORT + 1)]
    roster.remove("b")
    assert owner(roster, 104) is None
    assert [PORT + 1] == [claim.target.port for claim in roster.targets(104)]


def test_forwards_go_to_the_lowest_node_first() -> None:
    """The agent with the lowest node rank comes first, then agents without a rank, then unreachable ones."""
    roster = Roster()
    roster.put(agent("x", forwards=(6006,)), 100)
    roster.put(agent("b", node=1, forwards=(6006,)), 100)
    roster.put(agent("a", node=0, forwards=(6006,)), 100)
    forward = Destination(6006, is_forward=True)
    assert "a" == roster.route(forward, 101)
    assert "b" == roster.route(Destination(6006, is_forward=True, node_rank=1), 101)
    assert roster.route(Destination(6006, is_forward=True, node_rank=7), 101) is None
    roster.lost("a", 101)
    assert "b" == roster.route(forward, 102)


def test_ports_and_forwards_fall_back_to_each_other() -> None:
    """--ports prefers targets and --forward prefers forwards, and each uses the other if there is nothing else."""
    roster = Roster()
    roster.put(agent("target", PORT), 100)
    roster.put(agent("forward", forwards=(PORT, 6006)), 100)
    assert ["target", "forward"] == [
        roster.route(Destination(PORT, is_forward=is_forward), 101) for is_forward in (False, True)
    ]
    assert "forward" == roster.route(Destination(6006), 101)


def test_missing_agents() -> None:
    """Their number follows from the world sizes, if each missing agent has as many ranks as the largest known one."""
    roster = Roster()
    assert 0 == roster.missing_agents()
    for name, ranks, base, missing in [
        ("a", range(8), 5678, 8),
        ("b", range(8, 12), 5678, 7),
        ("c", range(4), 7000, 15),
    ]:
        targets = tuple(TargetInfo(base + rank, rank=rank, world=65) for rank in ranks)
        roster.put(AgentInfo(name, host=name, targets=targets), 100)
        assert missing == roster.missing_agents()
    roster.put(agent("d", *range(9000, 9080)), 100)
    assert 2 == roster.missing_agents()


NAMES = st.sampled_from("abcd")


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "lost", "found", "remove"]), NAMES, st.sets(st.sampled_from([1, 2]))),
        max_size=30,
    )
)
def test_a_port_always_has_exactly_one_owner_if_it_is_claimed(steps: list[tuple[str, str, set[int]]]) -> None:
    """In any history, a claimed port has one owner; after AWAY_LIMIT a reachable one, if any claimant is reachable."""
    roster = Roster()
    claims: dict[str, set[int]] = {}
    away: set[str] = set()
    for now, (what, name, ports) in enumerate(steps):
        if what == "put":
            roster.put(agent(name, *ports), now)
            claims[name] = ports
        elif what == "remove":
            roster.remove(name)
            claims.pop(name, None)
            away.discard(name)
        elif what == "lost":
            roster.lost(name, now)
            away |= {name} & claims.keys()
        else:
            roster.found(name)
            away.discard(name)
        for port in (1, 2):
            claimants = {name for name, claimed in claims.items() if port in claimed}
            found = owner(roster, now + AWAY_LIMIT, port)
            assert (found in claimants) if claimants else found is None
            if claimants - away:
                assert found not in away

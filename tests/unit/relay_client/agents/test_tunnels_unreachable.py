"""Facts about the errors for destinations that cannot be reached."""

import pytest

from relay_client.agents.roster import Destination, Roster
from relay_client.agents.tunnels import (
    NotForwarded,
    describe_agents,
    disconnected_error,
    may_register,
    no_agent_error,
    no_process_error,
)
from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.net.session.client import LinkState, LinkStatus


def roster(world: int | None = None) -> Roster:
    """Return the agents of a job on one node."""
    found = Roster()
    found.put(AgentInfo("a", host="node-0", node_rank=0, targets=(TargetInfo(5678, rank=0, world=world),)), 100)
    return found


@pytest.mark.parametrize(
    ("is_encrypted", "end"), [(True, "; encrypted end to end"), (False, "; NOT encrypted end to end")]
)
def test_agents_are_described(is_encrypted: bool, end: str) -> None:
    """The line contains each agent with its ports, and whether the tunnels are encrypted."""
    text = describe_agents(roster(), 100, is_encrypted=is_encrypted)
    assert "node-0/a (node 0) serves port 5678 (rank 0)" in text
    assert text.endswith(end)


@pytest.mark.parametrize(("reason", "end"), [("", ")"), ("no answer to a ping", "): no answer to a ping")])
def test_tunnel_that_is_not_connected(reason: str, end: str) -> None:
    """The error has the state of the tunnel, since when, and the reason if it is known."""
    error = disconnected_error("node-0/a", LinkStatus(LinkState.RECONNECTING, 100.0, reason))
    assert error.sentence.startswith(f"the tunnel to node-0/a is {LinkState.RECONNECTING.value} (since ")
    assert error.sentence.endswith(end)
    assert "reconnects automatically" in error.hint


@pytest.mark.parametrize(
    ("wanted", "kind", "hint"),
    [
        (Destination(5679), "NoListener", "check --ports against the job's --debug-port"),
        (Destination(6006, is_forward=True), "NotForwarded", "start the job with --debug-forward 6006"),
        (Destination(6006, is_forward=True, node_rank=0), "NotForwarded", "start the job with --debug-forward 6006"),
        (Destination(6006, is_forward=True, node_rank=3), "NoListener", "start the job with --debug-forward 6006"),
    ],
)
def test_destination_that_nobody_serves(wanted: Destination, kind: str, hint: str) -> None:
    """A forward that a known node does not have will never come; a rank or a node may still register."""
    error = no_agent_error(wanted, "myhc", roster(), "AGENTS")
    assert (kind, kind != "NotForwarded") == (type(error).__name__, error.retryable)
    assert f"no agent on 'myhc' serves {wanted}; AGENTS" == error.sentence
    assert error.hint.startswith(hint)
    assert isinstance(error, NotForwarded) == (kind == "NotForwarded")


@pytest.mark.parametrize(("world", "is_named"), [(None, True), (1, True), (2, False)])
def test_workers_that_the_job_starts_itself(world: int | None, is_named: bool) -> None:
    """If no launcher has started the ranks, the hint names workers of `mp.spawn`, which set their rank too late."""
    error = no_agent_error(Destination(5679), "myhc", roster(world), "AGENTS")
    assert is_named == ("torch.multiprocessing.spawn, has a port only if it calls start_remote" in error.hint)


TWO = [TargetInfo(5678, rank=0, world=2), TargetInfo(5679, rank=1, world=2)]


@pytest.mark.parametrize(
    ("targets", "rank", "port", "expected"),
    [
        ([], 7, None, True),
        ([TargetInfo(6006)], 7, None, True),
        (TWO, 7, None, False),
        (TWO[:1], 1, None, True),
        (TWO, 0, 5680, False),
        (TWO, 0, 5677, False),
        (TWO[1:], 0, 5678, True),
        ([*TWO, TargetInfo(5690, rank=0, world=8)], 7, None, True),
        ([*TWO, TargetInfo(5690, rank=0, world=8)], 0, 5697, True),
        ([TargetInfo(5678, rank=0, world=1)], 7, None, True),
        ([TargetInfo(5678, rank=0)], 7, None, True),
        ([TargetInfo(5678, rank=0)], 5678, None, False),
        ([TargetInfo(5678, rank=0)], 0, 5690, True),
    ],
)
def test_processes_that_may_register(targets: list[TargetInfo], rank: int, port: int | None, *, expected: bool) -> None:
    """A rank beyond the sizes of all jobs, or the number of a registered port in its place, cannot register."""
    assert expected == may_register(targets, rank, port)


@pytest.mark.parametrize(
    ("targets", "ranks", "port", "text"),
    [
        (TWO, [7], None, "no process has rank 7. hint: use a registered rank: 0-1"),
        (TWO, [7, 8], None, "no process has ranks 7-8. hint: use a registered rank: 0-1"),
        (
            TWO,
            [5679],
            None,
            "no process has rank 5679. hint: use a registered rank: 0-1; 5679 is the port of rank 1",
        ),
        (TWO, [0], 5690, "no process has port 5690. hint: use a registered port: 5678-5679"),
        (
            [TargetInfo(6006)],
            [7],
            None,
            "no process has rank 7. hint: run 'relay-client targets' to list the registered processes",
        ),
    ],
)
def test_processes_that_are_not_there(targets: list[TargetInfo], ranks: list[int], port: int | None, text: str) -> None:
    """The hint has the ranks or the ports that are registered."""
    assert text == str(no_process_error(targets, ranks, port))

"""Facts about the errors for destinations that cannot be reached."""

import pytest

from relay_client.agents.roster import Destination, Roster
from relay_client.agents.tunnels import NotForwarded, describe_agents, disconnected_error, no_agent_error
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

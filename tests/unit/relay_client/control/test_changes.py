"""Facts about the events that follow from two states of a relay-client."""

import itertools
from dataclasses import replace

import pytest

from relay_client.control.changes import changes
from relay_client.control.state import ClientId, Port, Status
from relay_client.ports.connection_state import Connection
from relay_client.ranks.record import Ended, Node, Target
from relay_client.ranks.view import StopReport

CLIENT = ClientId("1a2b3c4d", 12, "contoso.servicebus.windows.net", "myhc", "forward", 1.0, "/home/alice", "1.0")
RANK = Target(5681, rank=3, pid=44, kind="running", text="running", state="running")
NODE = Node("agent-1", "host-1", "connected", 1.0, node_rank=1, targets=(RANK,))
BEFORE = Status(CLIENT, 10.0, (NODE,), (Port(5681, 5681),))


def texts(before: Status, after: Status) -> list[tuple[str, str]]:
    """Return kind and text of each event."""
    return [(event.event, event.text) for event in changes(before, after)]


def with_node(**fields: object) -> Status:
    return replace(BEFORE, time=11.0, nodes=(replace(NODE, **fields),))


def with_rank(**fields: object) -> Status:
    return with_node(targets=(replace(RANK, **fields),))


def test_no_difference_is_no_event() -> None:
    """Round trips and byte counts are none either."""
    assert [] == texts(BEFORE, BEFORE)
    assert [] == texts(BEFORE, with_node(round_trip=0.065))


def test_a_new_node() -> None:
    """A tunnel is connected, with the ranks that the node has."""
    nobody = replace(BEFORE, nodes=())
    assert [
        ("connected", "node 1 (host-1): connected"),
        ("state", "rank 3 on host-1 is running"),
    ] == texts(nobody, BEFORE)
    (event,) = [event for event in changes(nobody, BEFORE) if event.event == "state"]
    assert ("agent-1", "host-1", 3, 5681, 44, "running") == (
        event.agent,
        event.host,
        event.rank,
        event.port,
        event.pid,
        event.state,
    )


def test_a_tunnel_is_lost_resumed_and_over() -> None:
    """Each has its reason; a tunnel that is over and then removed is one event."""
    away = with_node(link="reconnecting", link_reason="the network is unreachable")
    over = with_node(link="lost", link_reason="the job has ended")
    assert [("lost", "node 1 (host-1): reconnecting: the network is unreachable")] == texts(BEFORE, away)
    assert [] == texts(away, with_node(link="not answering"))
    assert [("resumed", "node 1 (host-1): connected again")] == texts(away, BEFORE)
    assert [("ended", "node 1 (host-1): the session has ended: the job has ended")] == texts(away, over)
    assert [] == texts(over, replace(BEFORE, nodes=()))
    assert [("ended", "node 1 (host-1): the session has ended")] == texts(BEFORE, replace(BEFORE, nodes=()))


def test_a_rank_changes_its_state_and_ends() -> None:
    """State, details and process id matter, and a rank that is no longer announced has ended."""
    crashed = with_rank(kind="crashed", text="crashed: ValueError: no", state="crashed", detail="ValueError: no")
    assert [("state", "rank 3 on host-1 crashed: ValueError: no")] == texts(BEFORE, crashed)
    assert [("state", "rank 3 on host-1 is running")] == texts(BEFORE, with_rank(pid=45))
    assert [("ended", "rank 3 on host-1 has ended")] == texts(BEFORE, with_node(targets=()))
    killed = with_node(targets=(), ended=(Ended(5681, "has ended", 43), Ended(5681, "was killed by SIGKILL", 44)))
    assert [("ended", "rank 3 on host-1 was killed by SIGKILL")] == texts(BEFORE, killed)


def test_a_rank_is_held_and_free() -> None:
    """The holder is named, also when another one takes over."""
    held = with_rank(holder="bob@laptop", held_since=10.0)
    assert [("held", "rank 3 on host-1 is held by bob@laptop")] == texts(BEFORE, held)
    assert [("held", "rank 3 on host-1 is held by alice@desk")] == texts(held, with_rank(holder="alice@desk"))
    assert [("free", "rank 3 on host-1 is free: bob@laptop has disconnected")] == texts(held, BEFORE)


def test_ranks_begin_to_wait_for_others() -> None:
    """Ranks of a node that wait for the same one are one event, because a job can have a thousand of them."""
    others = (RANK, replace(RANK, port=5682, rank=4))
    wait = "in all_reduce, waiting for rank 2"
    waiting = with_node(targets=tuple(replace(rank, text=wait) for rank in others))
    running = with_node(targets=others)
    assert [("state", f"node 1 (host-1): ranks are {wait}")] == texts(running, waiting)
    assert [("state", "node 1 (host-1): ranks are running")] == texts(waiting, running)


def test_a_rank_stops_and_continues() -> None:
    """A stop is an event when it happens, and again when its place is known."""
    stopped = with_rank(stop=StopReport("breakpoint", 11.0))
    placed = with_rank(place="train.py:41", stop=StopReport("breakpoint", 11.0, "/home/alice/train.py", 41, "step"))
    assert [("stopped", "rank 3 on host-1 is stopped (breakpoint)")] == texts(BEFORE, stopped)
    assert [("stopped", "rank 3 on host-1 is stopped at train.py:41 (breakpoint)")] == texts(stopped, placed)
    (event,) = changes(stopped, placed)
    assert ("/home/alice/train.py", 41, "breakpoint") == (event.file, event.line, event.reason)
    assert [("continued", "rank 3 on host-1 continues")] == texts(placed, BEFORE)


def test_a_rank_stops_at_an_uncaught_exception() -> None:
    """The event has the exception, which is what its text states."""
    why = "ValueError: no"
    crashed = with_rank(stop=StopReport("exception", 11.0, uncaught=why), kind="crashed", text=f"crashed: {why}")
    (event,) = changes(BEFORE, crashed)
    assert ("stopped", f"rank 3 on host-1 crashed: {why}", why) == (event.event, event.text, event.detail)


def test_ports_open_and_close() -> None:
    """Each port is one event."""
    more = replace(BEFORE, ports=(*BEFORE.ports, Port(6006, 6006, is_forward=True)))
    assert [("opened", "port 6006 is open")] == texts(BEFORE, more)
    assert [("closed", "port 6006 is closed")] == texts(more, BEFORE)


def test_connections_come_and_go() -> None:
    """A connection waits, reaches its target and ends, each with its reason; its end is one event."""
    connection = Connection(1, 5681, "waiting", 10.0)
    steps = [
        BEFORE,
        replace(BEFORE, connections=(connection,)),
        replace(BEFORE, connections=(replace(connection, reason="no agent is listening"),)),
        replace(BEFORE, connections=(replace(connection, state="connected"),)),
        replace(BEFORE, connections=(replace(connection, state="connected", received=100),)),
        replace(BEFORE, connections=(replace(connection, state="closed", reason="held by bob"),)),
        BEFORE,
    ]
    assert [
        [("waiting", "port 5681 connection 1 is waiting for a target")],
        [("waiting", "port 5681 connection 1 is waiting for a target: no agent is listening")],
        [("attached", "port 5681 connection 1 is connected to its target")],
        [],
        [("detached", "port 5681 connection 1 has ended: held by bob")],
        [],
    ] == [texts(before, after) for before, after in itertools.pairwise(steps)]
    assert [("detached", "port 5681 connection 1 has ended")] == texts(steps[3], BEFORE)


class Counted(Target):
    """A target that counts how often somebody asks for its name."""

    asked = 0

    @property
    def label(self) -> str:
        Counted.asked += 1
        return super().label


def test_the_work_grows_with_the_targets_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of a thousand targets that crash, or end, are compared once, not each with each other."""
    monkeypatch.setattr(Counted, "asked", 0)
    running = tuple(Counted(10_000 + rank, rank=rank, state="running") for rank in range(1000))
    crashed = tuple(replace(target, state="crashed") for target in running)
    assert 1000 == len(texts(with_node(targets=running), with_node(targets=crashed)))
    assert 1000 == len(texts(with_node(targets=running), with_node(targets=())))
    assert Counted.asked < 20 * 1000

"""Facts about the events that follow from two states of a relay-client."""

import itertools
from dataclasses import replace

from relay_client.control.state import ClientId, Port, Status, changes
from relay_client.ranks.record import Connection, Node, Target

CLIENT = ClientId("1a2b3c4d", 12, "contoso.servicebus.windows.net", "myhc", "forward", 1.0, "/home/alice", "1.0")
RANK = Target(5681, rank=3, pid=44, kind="running", text="running", state="running")
NODE = Node("agent-1", "host-1", "connected", 1.0, node_rank=1, targets=(RANK,))
BEFORE = Status(CLIENT, 10.0, (NODE,), (Port(5681, 5681),))


def texts(before: Status, after: Status) -> list[tuple[str, str]]:
    """Return kind and text of each event."""
    return [(event.event, event.text) for event in changes(before, after)]


def test_no_difference_is_no_event() -> None:
    """The same state twice is none."""
    assert [] == texts(BEFORE, BEFORE)


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


def test_a_session_is_over() -> None:
    """A tunnel that is over and then removed is one event."""
    away, nobody = replace(NODE, link="lost", link_reason="the job has ended"), replace(BEFORE, nodes=())
    over = replace(BEFORE, nodes=(away,))
    assert [("ended", "node 1 (host-1): the session has ended: the job has ended")] == texts(BEFORE, over)
    assert [] == texts(over, nobody)
    assert [("ended", "node 1 (host-1): the session has ended")] == texts(BEFORE, nobody)


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

"""Facts about the text of `relay-client status`."""

import time

from relay_client.control.state import ClientId, Port, Status
from relay_client.control.status_text import status_text
from relay_client.ranks.record import Connection, Ended, Node, Target
from relay_client.ranks.view import StopReport
from relay_client.ui.text import clock

NOW = time.time()
CLIENT = ClientId("1a2b3c4d", 12, "contoso.servicebus.windows.net", "myhc", "forward", NOW - 60, "/home/alice", "1.0")
HEADING = (
    f"relay-client 1a2b3c4d (pid 12, forward) on 'myhc' in contoso.servicebus.windows.net, since {clock(NOW - 60)}"
)


def test_nobody_there() -> None:
    """A relay-client without an agent shows that, and why a connection waits."""
    ports = (Port(5678, 5678), Port(16006, 6006, is_forward=True, node_rank=1))
    waiting = Connection(1, 5678, "waiting", NOW, "no agent is listening on 'myhc'")
    assert [
        HEADING,
        "  127.0.0.1:5678, 1 connection (1 waiting: no agent is listening on 'myhc')",
        "  127.0.0.1:16006 to port 6006 on node 1",
        "  no agent is connected",
    ] == status_text(Status(CLIENT, NOW, (), ports, (waiting,))).splitlines()


def test_editors_that_listen() -> None:
    """A port on which an editor is listening shows if it is there, why it waits, or that the job has connected."""
    ports = tuple(Port(port, port, is_editor=True) for port in (5678, 5679, 5680, 5681))
    connections = (
        Connection(1, 5679, "waiting", NOW),
        Connection(2, 5680, "waiting", NOW, "no agent is listening yet"),
        Connection(3, 5681, "connected", NOW),
        Connection(4, 5681, "connected", NOW),
    )
    assert [
        "  127.0.0.1:5678: no editor is listening at the moment",
        "  127.0.0.1:5679: an editor is listening: looking for its target",
        "  127.0.0.1:5680: an editor is listening: no agent is listening yet",
        "  127.0.0.1:5681: the job has connected to an editor (2)",
    ] == status_text(Status(CLIENT, NOW, (), ports, connections)).splitlines()[1:-1]


def test_how_processes_have_ended() -> None:
    """An ended rank keeps its name; equal endings are in one line, and a port of another process now has none."""
    how = "was killed by SIGKILL (the usual cause is lack of memory)"
    ranks = (Ended(5678 + rank, how, rank=rank) for rank in (1, 2))
    ended = (Ended(5678, "has ended", rank=0), *ranks, Ended(5690, how, rank=12), Ended(5700, how))
    node = Node("a", "node-0", "connected", NOW, targets=(Target(5690, kind="running", text="running"),), ended=ended)
    assert [
        "    rank 0, port 5678, has ended",
        "    ranks 1-2, ports 5679-5680, were killed by SIGKILL (the usual cause is lack of memory)",
        "    port 5700 was killed by SIGKILL (the usual cause is lack of memory)",
    ] == status_text(Status(CLIENT, NOW, (node,))).splitlines()[-3:]


def test_nodes_and_ranks() -> None:
    """A rank shows its port, what it is doing, and who holds it since when, or that this is here."""
    stop = StopReport("breakpoint", NOW - 5, "C:\\code\\train.py", 41)
    ranks = (
        Target(
            *(5678, 0),
            kind="stopped",
            text="stopped at train.py:41",
            since=NOW - 5,
            holder="alice@laptop",
            held_since=NOW - 60,
            stop=stop,
        ),
        Target(5679, rank=1, kind="crashed", text="crashed: ValueError: no", since=NOW - 300, stop=stop),
        Target(5690, kind="waiting", text="waiting for a debugger", since=NOW - 40),
        Target(5691),
        Target(5692, kind="stopped", text="stopped at train.py:7", holder="bob@laptop"),
        Target(5694, kind="running", text="running", since=NOW - 7, holder="bob@laptop"),
        Target(5693, kind="running", text="running", holder="alice@laptop", attached_here=True),
    )
    nodes = (
        Node("a", "host-0", "connected", NOW, node_rank=0, round_trip=0.0651, targets=ranks),
        Node("b", "host-1", "reconnecting", NOW - 20, "no route to host"),
    )
    assert [
        HEADING,
        "  node 0 (host-0): connected, round trip 65.1 ms",
        "    rank 0, port 5678, stopped at train.py:41 (breakpoint) for 5 s, held by alice@laptop for 1 min",
        "    rank 1, port 5679, crashed: ValueError: no for 5 min",
        "    port 5690, waiting for a debugger for 40 s",
        "    port 5691",
        "    port 5692, stopped at train.py:7, held by bob@laptop",
        "    port 5694, running for 7 s, held by bob@laptop",
        "    port 5693, running, attached here",
        "  host-1: reconnecting for 20 s: no route to host",
    ] == status_text(Status(CLIENT, NOW, nodes)).splitlines()

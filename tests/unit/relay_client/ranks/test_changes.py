"""Facts about the events that follow from two records of a node."""

from dataclasses import replace

import pytest

from relay_client.ranks.changes import node_changes
from relay_client.ranks.record import Ended, Node, Target
from relay_client.ranks.view import StopReport

RANK = Target(5681, rank=3, pid=44, kind="running", text="running", state="running")
BEFORE = Node("agent-1", "host-1", "connected", 1.0, node_rank=1, targets=(RANK,))


def texts(before: Node, after: Node) -> list[tuple[str, str]]:
    """Return kind and text of each event."""
    return [(event.event, event.text) for event in node_changes(before, after, 11.0)]


def with_node(**fields: object) -> Node:
    return replace(BEFORE, **fields)


def with_rank(**fields: object) -> Node:
    return with_node(targets=(replace(RANK, **fields),))


def test_no_difference_is_no_event() -> None:
    """Round trips and byte counts are none either."""
    assert [] == texts(BEFORE, BEFORE)
    assert [] == texts(BEFORE, with_node(round_trip=0.065))


def test_a_tunnel_is_lost_resumed_and_over() -> None:
    """Each has its reason."""
    away = with_node(link="reconnecting", link_reason="the network is unreachable")
    over = with_node(link="lost", link_reason="the job has ended")
    assert [("lost", "node 1 (host-1): reconnecting: the network is unreachable")] == texts(BEFORE, away)
    assert [] == texts(away, with_node(link="not answering"))
    assert [("resumed", "node 1 (host-1): connected again")] == texts(away, BEFORE)
    assert [("ended", "node 1 (host-1): the session has ended: the job has ended")] == texts(away, over)


def test_a_rank_changes_its_state_and_ends() -> None:
    """A rank that leaves the announcement is unavailable, unless its end is announced."""
    crashed = with_rank(kind="crashed", text="crashed: ValueError: no", state="crashed", detail="ValueError: no")
    assert [("state", "rank 3 on host-1 crashed: ValueError: no")] == texts(BEFORE, crashed)
    assert [("state", "rank 3 on host-1 has a new process: pid 44 -> 45")] == texts(BEFORE, with_rank(pid=45))
    unavailable = [("ended", "rank 3 on host-1 became unavailable (pid 44)")]
    assert unavailable == texts(BEFORE, with_node(targets=()))
    exiting = with_node(targets=(), ended=(Ended(5681, "has ended", 44, is_final=False),))
    assert [] == texts(BEFORE, exiting)
    killed = with_node(targets=(), ended=(Ended(5681, "was killed by SIGKILL", 44),))
    assert [("ended", "rank 3 on host-1 (pid 44) was killed by SIGKILL")] == texts(BEFORE, killed)
    later = with_node(targets=(), ended=(Ended(5681, "was killed by SIGKILL", 44, rank=3),))
    assert [("ended", "rank 3 on host-1 (pid 44) was killed by SIGKILL")] == texts(exiting, later)
    twin = with_node(targets=(replace(RANK, port=5701),), ended=later.ended)
    assert [("ended", "rank 3 on host-1 (port 5681) (pid 44) was killed by SIGKILL")] == texts(exiting, twin)[:1]


def test_a_rank_that_was_restarted_and_has_crashed() -> None:
    """The end of the first process, the new process and its state are an event each; what was known is none."""
    ended = (Ended(5681, "ended with status 1", 44),)
    crashed = replace(RANK, pid=45, kind="crashed", text="crashed: no", state="crashed", detail="no")
    after = with_node(targets=(crashed,), ended=ended)
    assert [
        ("ended", "rank 3 on host-1 (pid 44) ended with status 1"),
        ("state", "rank 3 on host-1 has a new process: pid 44 -> 45"),
        ("state", "rank 3 on host-1 crashed: no"),
    ] == texts(BEFORE, after)
    assert [] == texts(after, after)
    assert ["connected", "state"] == [event.event for event in node_changes(None, after, 11.0)]


def test_a_rank_is_held_and_free() -> None:
    """The holder is named, also when another one takes over."""
    held = with_rank(holder="bob@laptop", held_since=10.0)
    assert [("held", "rank 3 on host-1 is held by bob@laptop")] == texts(BEFORE, held)
    assert [("held", "rank 3 on host-1 is held by alice@desk")] == texts(held, with_rank(holder="alice@desk"))
    assert [("free", "rank 3 on host-1 is free: bob@laptop disconnected")] == texts(held, BEFORE)


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
    (event,) = node_changes(stopped, placed, 11.0)
    assert ("/home/alice/train.py", 41, "breakpoint") == (event.file, event.line, event.reason)
    announced = with_rank(place="train.py:41", stop=StopReport("breakpoint", 11.0))  # the editor asks for no stack
    assert [("stopped", "rank 3 on host-1 is stopped at train.py:41 (breakpoint)")] == texts(stopped, announced)
    assert [] == texts(announced, announced)
    assert [("continued", "rank 3 on host-1 continues")] == texts(placed, BEFORE)


def test_a_rank_stops_at_an_uncaught_exception() -> None:
    """The event has the exception, which is what its text states."""
    why = "ValueError: no"
    crashed = with_rank(stop=StopReport("exception", 11.0, uncaught=why), kind="crashed", text=f"crashed: {why}")
    (event,) = node_changes(BEFORE, crashed, 11.0)
    assert ("stopped", f"rank 3 on host-1 crashed: {why}", why) == (event.event, event.text, event.detail)


def announced(place: str, since: float = 11.0, **fields: object) -> Node:
    """Return a record of a stop that only the node has announced."""
    text = f"stopped at {place}" if place else "stopped"
    return with_rank(**{"kind": "stopped", "text": text, "place": place, "since": since, "holder": "bob@vm", **fields})


def test_a_rank_is_stopped_by_another_client() -> None:
    """What its node announces is the same event, for each stop and when its place is known."""
    held = with_rank(holder="bob@vm")
    first, placed = announced(""), announced("train.py:41")
    assert [("stopped", "rank 3 on host-1 is stopped")] == texts(held, first)
    assert [("stopped", "rank 3 on host-1 is stopped at train.py:41")] == texts(first, placed)
    (event,) = node_changes(held, placed, 11.0)
    assert ("train.py", 41, None, None) == (event.file, event.line, event.reason, event.detail)
    assert [] == texts(placed, placed)
    assert [("stopped", "rank 3 on host-1 is stopped at train.py:41")] == texts(placed, announced("train.py:41", 12.0))
    assert [("continued", "rank 3 on host-1 continues")] == texts(placed, held)
    assert ["connected", "state", "held", "stopped"] == [each.event for each in node_changes(None, placed, 11.0)]


def test_a_stop_with_two_sources() -> None:
    """The report of this relay-client's debugger and the announcement are one event, whichever is first."""
    stop = StopReport("breakpoint", 11.5, "/home/alice/train.py", 41)
    running, waiting = with_rank(holder="bob@vm"), announced("train.py:41", attached_here=True)
    reported = announced("train.py:41", 11.5, stop=stop, attached_here=True)
    assert [("stopped", "rank 3 on host-1 is stopped at train.py:41 (breakpoint)")] == texts(running, reported)
    assert [] == texts(reported, announced("train.py:41"))
    assert [] == texts(announced("train.py:41"), reported)
    assert [] == texts(with_rank(holder="bob@vm", attached_here=True), waiting)
    assert ["stopped"] == [event for event, _ in texts(waiting, reported)]
    assert [("continued", "rank 3 on host-1 continues")] == texts(reported, waiting)
    assert [] == texts(waiting, announced("train.py:41"))


def test_a_crash_under_a_debugger_elsewhere() -> None:
    """A stop at an exception that no code catches has the exception; a rank that is held at a crash is not stopped."""
    crash = {"kind": "crashed", "text": "crashed: ValueError: no"}
    (event,) = node_changes(with_rank(holder="bob@vm"), announced("train.py:41", **crash), 11.0)
    assert ("stopped", "ValueError: no", "train.py", 41) == (event.event, event.detail, event.file, event.line)
    assert "rank 3 on host-1 crashed: ValueError: no" == event.text
    held = announced("train.py:41", **crash, state="crashed", detail="ValueError: no")
    assert ["state"] == [event for event, _ in texts(with_rank(holder="bob@vm"), held)]


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

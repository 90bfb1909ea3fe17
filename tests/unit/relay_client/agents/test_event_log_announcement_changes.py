"""Facts about the log lines for changes of agents and targets."""

import asyncio
import itertools
import logging
import time
from dataclasses import replace

import pytest

from relay_client.agents import event_log
from relay_client.agents.event_log import (
    FIRST_STOP,
    MAX_LINES,
    AgentEvent,
    EventLog,
    agent_events,
    attachment_texts,
    describe_agent,
)
from relay_core.agent_api import VERSION
from relay_core.agent_api.announcement import AgentInfo, Attachment, Ending, State, TargetInfo
from relay_core.net.session.client import LinkState, LinkStatus
from tests.support.machine.deadline import until

NOW = 1000.0
RANK = TargetInfo(5681, rank=3, pid=44, script="train.py", state=State.RUNNING, since=900.0)
BOB = Attachment("bob@laptop", NOW - 250)
NODE = AgentInfo("1a2b3c4d-5e6f", host="node-1", node_rank=1, targets=(RANK,))


def lines(**changes: object) -> list[str]:
    """Return the lines that are logged when the rank changes like this."""
    return [event.text for event in agent_events(NODE, replace(NODE, targets=(replace(RANK, **changes),)), NOW)]


def test_a_new_agent_is_one_line() -> None:
    """The line for a new agent contains everything that it serves."""
    other = replace(RANK, port=5680, rank=2, state=State.WAITING)
    node = replace(NODE, targets=(RANK, other), forwards=(6006,))
    assert [
        AgentEvent(
            "found an agent: node-1/1a2b3c4d (node 1) serves ports 5680-5681 (rank 3 running, rank 2 waiting for a "
            "debugger) and forwards port 6006"
        )
    ] == list(agent_events(None, node, NOW))


def test_a_newer_agent() -> None:
    """An agent that may announce what this client does not know has a second line."""
    *_, last = agent_events(None, replace(NODE, version=VERSION + 1), NOW)
    assert AgentEvent("node-1/1a2b3c4d is newer than this client; some of its information may not be shown") == last


def test_an_agent_of_fixed_ports() -> None:
    """Ports without a rank are listed as ports, and once, even if they are also forwards."""
    node = AgentInfo("1a2b3c4d", host="box", targets=(TargetInfo(5999),), forwards=(5999,))
    assert "box/1a2b3c4d serves port 5999" == describe_agent(node, NOW)


def test_an_agent_without_anything() -> None:
    """An agent whose processes have not registered yet serves nothing."""
    assert "box/1a2b3c4d serves nothing" == describe_agent(AgentInfo("1a2b3c4d", host="box"), NOW)


def test_of_many_targets_only_the_special_ones_are_described() -> None:
    """A node with sixteen ranks is still one readable line."""
    targets = [TargetInfo(5678 + rank, rank=rank, state=State.RUNNING) for rank in range(16)]
    targets[3] = replace(targets[3], attachment=BOB)
    node = replace(NODE, targets=tuple(targets))
    assert (
        "node-1/1a2b3c4d (node 1) serves ports 5678-5693 (ranks 0-15, rank 3 held by bob@laptop for 4 min)"
        == describe_agent(node, NOW)
    )


def test_an_unchanged_announcement_has_no_events() -> None:
    """An announcement that repeats the last one is not logged."""
    assert [] == lines()
    assert [] == lines(since=950.0)


def test_attaching_and_disconnecting() -> None:
    """The lines for a debugger that attaches and disconnects contain its user."""
    held = {"attachment": BOB}
    assert ["rank 3 on node-1 is held by bob@laptop"] == lines(**held)
    before = replace(NODE, targets=(replace(RANK, **held),))
    assert ["rank 3 on node-1 is free: bob@laptop disconnected after 4 min"] == [
        event.text for event in agent_events(before, NODE, NOW)
    ]
    assert ["rank 3 held by bob@laptop for 4 min"] == attachment_texts([before], NOW)


async def test_reminders_of_attached_debuggers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reminder leaves out a debugger that has just attached, because the line before it states that."""
    monkeypatch.setattr(event_log, "REMINDER_INTERVAL", 0.0)
    caplog.set_level(logging.INFO, "relay_client")
    now, log = time.time(), EventLog(lambda: None)
    ages = {5681: 250, 5682: 0}
    log.announced(
        replace(NODE, targets=tuple(TargetInfo(port, attachment=replace(BOB, since=now - ages[port])) for port in ages))
    )
    reminding = asyncio.ensure_future(log.remind_of_attachments())
    await until(lambda: len(caplog.messages) > 1)
    reminding.cancel()
    assert "port 5681 held by bob@laptop for 4 min" == caplog.messages[1]


def test_peers_that_do_not_wait_long() -> None:
    """A rank that is held is named with the timeout of the others, once; the others are not named."""
    text = "rank 3 on node-1: the other ranks wait at most 10 min for it (timeout of the process group)"
    assert [text] == lines(attachment=BOB, peer_timeout=600.0)[1:]
    assert [] == lines(peer_timeout=600.0)


def test_a_crash_is_an_alarm() -> None:
    """The line for a crash has the exception, the port to attach to and the time limit."""
    crashed = replace(RANK, state=State.CRASHED, detail="ValueError: no", until=NOW + 1799.5)
    after = replace(NODE, targets=(crashed,))
    text = "rank 3 on node-1 crashed: ValueError: no; press F5 to attach to port 5681 within 30 min"
    assert [AgentEvent(text, is_warning=True, is_alarm=True)] == list(agent_events(NODE, after, NOW))
    assert text in [event.text for event in agent_events(None, after, NOW)]
    assert [] == list(agent_events(after, replace(NODE, targets=(replace(crashed, since=999.0),)), NOW))


def test_a_wave_of_crashes_is_one_line() -> None:
    """The line begins with the rank that crashed first, not with one that had lost its connection; then the others."""
    lost = "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:1234"
    details = [(lost, 990.0), ("ValueError: no", 992.0), ("KeyError: 1", 991.0)]
    crashed = [
        TargetInfo(5678 + rank, rank=rank, state=State.CRASHED, detail=detail, since=since)
        for rank, (detail, since) in enumerate(details)
    ]
    running = [replace(target, state=State.RUNNING, detail="") for target in crashed]
    before, after = (replace(NODE, targets=tuple(targets)) for targets in (running, crashed))
    [event] = agent_events(before, after, NOW)
    text = "rank 2 on node-1 crashed: KeyError: 1; press F5 to attach to port 5680; ranks 0-1 crashed as well"
    assert AgentEvent(text, is_warning=True, is_alarm=True) == event


def test_a_crash_behind_no_local_port() -> None:
    """If no local port leads to the rank, the line has the command that opens one instead of F5."""
    crashed = replace(RANK, state=State.CRASHED, detail="ValueError: no", until=NOW + 1799.5)
    after = replace(NODE, targets=(crashed,))
    text = "rank 3 on node-1 crashed: ValueError: no; to attach, run 'relay-client attach 3' within 30 min"
    assert [text] == [event.text for event in agent_events(NODE, after, NOW, leads_to=lambda _target: False)]


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (State.CRASHED, "rank 3 on node-1 crashed: ValueError: no"),
        (State.WAITING, "rank 3 on node-1 is waiting for a debugger"),
    ],
)
def test_a_log_without_hints(state: State, line: str) -> None:
    """The log of a command that is itself a debugger does not state how to attach."""
    detail = "ValueError: no" if state is State.CRASHED else ""
    after = replace(NODE, targets=(replace(RANK, state=state, detail=detail, until=NOW + 1799.5),))
    assert [line] == [event.text for event in agent_events(NODE, after, NOW, leads_to=lambda _target: None)]


def test_a_crash_with_a_debugger_is_not_an_alarm() -> None:
    """While a debugger is attached, nobody has to act."""
    held = {"state": State.CRASHED, "detail": "ValueError", "attachment": BOB}
    assert ["rank 3 on node-1 is held by bob@laptop"] == lines(**held)


def test_waiting_and_continuing() -> None:
    """The line for a waiting process has the port to attach to; when it continues, it is running."""
    assert ["rank 3 on node-1 is waiting for a debugger: press F5 to attach to port 5681"] == lines(state=State.WAITING)
    text = "rank 3 on node-1 is waiting for a debugger: press F5 to attach to port 5681 within 40 s"
    assert [text] == lines(state=State.WAITING, until=NOW + 39.9)
    assert [text.replace("40 s", "90 s")] == lines(state=State.WAITING, until=NOW + 89.6)
    waiting = replace(NODE, targets=(replace(RANK, state=State.WAITING),))
    assert ["rank 3 on node-1 is running"] == [event.text for event in agent_events(waiting, NODE, NOW)]


def test_a_waiting_process_that_a_debugger_stops() -> None:
    """The log states where the debugger stops it first; it does not state that the process is running before that."""
    bob = replace(BOB, since=NOW)
    stopped = replace(bob, is_stopped=True, stopped_since=NOW + 1)
    steps = [
        replace(RANK, state=State.WAITING),
        replace(RANK, state=State.WAITING, attachment=bob),
        replace(RANK, attachment=replace(bob, resumed_since=NOW + 1)),  # from the stop that pdb begins with
        replace(RANK, attachment=stopped),
        replace(RANK, attachment=replace(stopped, stopped_at="train.py:1")),
        replace(RANK, attachment=replace(stopped, stopped_at="train.py:2", stopped_since=NOW + 2)),
        replace(RANK, attachment=replace(bob, resumed_since=NOW + 3)),
        replace(RANK, attachment=replace(stopped, stopped_at="train.py:9", stopped_since=NOW + FIRST_STOP)),
    ]
    nodes = [replace(NODE, targets=(step,)) for step in steps]
    shown = ["rank 3 on node-1 is held by bob@laptop", "rank 3 on node-1 is stopped at train.py:1"]
    assert shown == [event.text for pair in itertools.pairwise(nodes) for event in agent_events(*pair, NOW)]
    assert shown == [event.text for event in agent_events(nodes[0], nodes[4], NOW)]


def test_a_restart() -> None:
    """The line for a process that replaced another one has both pids."""
    assert ["rank 3 on node-1 has a new process: pid 44 -> 50"] == lines(pid=50)


def test_targets_that_come_and_go() -> None:
    """New targets are logged in one line, removed targets in one line each."""
    empty = replace(NODE, targets=())
    assert ["node-1 also serves port 5681 (rank 3 running)"] == [event.text for event in agent_events(empty, NODE, NOW)]
    gone = ["rank 3 on node-1 became unavailable (pid 44)"]
    assert gone == [event.text for event in agent_events(NODE, empty, NOW)]


def test_how_a_target_has_ended() -> None:
    """The line about a target that has ended states how, with its name; what was known before is not repeated."""
    killed = replace(NODE, targets=(), endings=(Ending(5681, 44, signal=9),))
    how = "was killed by SIGKILL (the usual cause is lack of memory)"
    assert [f"rank 3 on node-1 (pid 44) {how}"] == [event.text for event in agent_events(NODE, killed, NOW)]
    assert [] == list(agent_events(killed, replace(killed, node_rank=2), NOW))
    again = replace(killed, targets=(replace(RANK, pid=50),))
    assert [f"rank 3 on node-1 (pid 44) {how}", "rank 3 on node-1 has a new process: pid 44 -> 50"] == [
        event.text for event in agent_events(NODE, again, NOW)
    ]


def test_an_exit_status_that_is_known_later() -> None:
    """The only line about the end is the one with the status, and it names the rank."""
    exiting = replace(NODE, targets=(), endings=(Ending(5681, 44, is_final=False, rank=3),))
    assert [] == list(agent_events(NODE, exiting, NOW))
    over = replace(exiting, endings=(Ending(5681, 44, status=3, rank=3),))
    assert ["rank 3 on node-1 (pid 44) ended with status 3"] == [
        event.text for event in agent_events(exiting, over, NOW)
    ]


def test_forwards_that_change() -> None:
    """A change of the forwarded ports is logged."""
    assert ["node-1 now forwards port 6006"] == [
        event.text for event in agent_events(NODE, replace(NODE, forwards=(6006,)), NOW)
    ]


def test_targets_with_the_same_name() -> None:
    """Each job has a rank 0: where a node has several, the lines contain the port."""
    twin = replace(RANK, port=5701)
    before, after = replace(NODE, targets=(RANK, twin)), replace(NODE, targets=(RANK, replace(twin, attachment=BOB)))
    assert ["rank 3 on node-1 (port 5701) is held by bob@laptop"] == [
        event.text for event in agent_events(before, after, NOW)
    ]


def test_three_jobs_on_one_node() -> None:
    """Where several jobs have a rank 0, each text about one of them names its port."""
    ranks = tuple(TargetInfo(port, rank=0, attachment=BOB if port == 5679 else None) for port in (5678, 5679, 5680))
    node = AgentInfo("1a2b3c4d", host="vm", targets=ranks)
    assert ["rank 0 (port 5679) held by bob@laptop for 4 min"] == attachment_texts([node], NOW)
    assert (
        "vm/1a2b3c4d serves ports 5678-5680 (rank 0 (port 5678), rank 0 (port 5679) held by bob@laptop for 4 min, "
        "rank 0 (port 5680))"
    ) == describe_agent(node, NOW)
    gone = [event.text for event in agent_events(node, replace(node, targets=ranks[:2]), NOW)]
    assert ["rank 0 on vm (port 5680) became unavailable"] == gone


def test_three_jobs_that_end_together() -> None:
    """The lines for targets with the same name contain their ports, also if none of them remains."""
    before = AgentInfo("1a2b3c4d", host="vm", targets=tuple(TargetInfo(port, rank=0) for port in (5678, 5679)))
    gone = [event.text for event in agent_events(before, replace(before, targets=()), NOW)]
    assert [f"rank 0 on vm (port {port}) became unavailable" for port in (5678, 5679)] == gone


def test_a_job_that_ends_after_another() -> None:
    """The line for the last target contains its port if another job with this rank was there."""
    (last, former), host = (TargetInfo(port, rank=0, pid=44) for port in (5678, 5679)), "vm"
    before = AgentInfo("1a2b3c4d", host=host, targets=(last,))
    after = replace(before, targets=(), endings=(Ending(5678, 44, status=3),))
    assert ["rank 0 on vm (port 5678) (pid 44) ended with status 3"] == [
        event.text for event in agent_events(before, after, NOW, [former])
    ]
    unknown = [event.text for event in agent_events(before, replace(after, endings=()), NOW, [former])]
    assert ["rank 0 on vm (port 5678) became unavailable (pid 44)"] == unknown


class Counted(TargetInfo):
    """A target that counts how often somebody asks for its name."""

    asked = 0

    @property
    def label(self) -> str:
        Counted.asked += 1
        return super().label


def test_the_work_grows_with_the_targets_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of a thousand targets that crash, or leave, are compared once, not each with each other."""
    monkeypatch.setattr(Counted, "asked", 0)
    running = tuple(Counted(10_000 + rank, rank=rank, state=State.RUNNING) for rank in range(1000))
    crashed = tuple(replace(target, state=State.CRASHED) for target in running)
    before, after = replace(NODE, targets=running), replace(NODE, targets=crashed)
    assert 1 == len(list(agent_events(before, after, NOW)))
    assert 1000 == len(list(agent_events(before, replace(NODE, targets=()), NOW, running)))
    assert [] == list(agent_events(before, before, NOW))
    assert Counted.asked < 20 * 1000


def test_many_changes_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """More changes than a node has processes are one line in each announcement."""
    log = EventLog(lambda: None)
    for state in (State.RUNNING, State.WAITING):
        targets = tuple(TargetInfo(1 + rank, rank=rank, state=state) for rank in range(4096))
        log.announced(replace(NODE, targets=targets))
    assert "ranks 0-4095 on node-1 have changed; run 'relay-client targets' to list their states" == caplog.messages[-1]
    assert 2 == len(caplog.messages)


def test_alarms_of_alternating_states(caplog: pytest.LogCaptureFixture) -> None:
    """As many changes as a node has processes are logged individually, except crashes; bells are a second apart."""
    alarms: list[None] = []
    log = EventLog(lambda: alarms.append(None))
    started = time.monotonic()
    for state in (State.RUNNING, State.CRASHED) * 3:
        targets = tuple(TargetInfo(1 + rank, rank=rank, state=state) for rank in range(MAX_LINES))
        log.announced(replace(NODE, targets=targets))
    assert 1 + 3 + 2 * MAX_LINES == len(caplog.messages)
    assert 1 <= len(alarms) <= 1 + (time.monotonic() - started)


@pytest.mark.parametrize(("level", "shown"), [(logging.WARNING, [2, 1]), (logging.INFO, [1, 2, 1])])
def test_a_tunnel_that_was_interrupted(caplog: pytest.LogCaptureFixture, level: int, shown: list[int]) -> None:
    """A command that shows only warnings shows once, as no warning, that an interrupted tunnel is connected again."""
    caplog.set_level(level, "relay_client")
    caplog.handler.setLevel(logging.NOTSET)
    log = EventLog(lambda: None)
    log.announced(NODE)
    caplog.clear()
    for state in (LinkState.CONNECTED, LinkState.RECONNECTING, LinkState.SILENT, LinkState.CONNECTED):
        log.link_changed(NODE.id, LinkStatus(state, NOW))
    is_connected = [message == "tunnel to node-1/1a2b3c4d: connected" for message in caplog.messages]
    assert shown == [len(list(group)) for _, group in itertools.groupby(is_connected)]
    assert is_connected == [record.levelno == logging.INFO for record in caplog.records]
    log.link_changed(NODE.id, LinkStatus(LinkState.CONNECTED, NOW))
    assert len(caplog.messages) == sum(shown) + (level == logging.INFO)

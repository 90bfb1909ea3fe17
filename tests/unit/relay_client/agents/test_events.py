"""Facts about the lines that users are told when something changes."""

from dataclasses import replace

from relay_client.agents.events import News, describe_agent, held_texts, news_of
from relay_core.agent_api.announcement import AgentInfo, Attachment, State, TargetInfo

NOW = 1000.0
RANK = TargetInfo(5681, rank=3, pid=44, script="train.py", state=State.RUNNING, since=900.0)
BOB = Attachment("bob@laptop", NOW - 250)
NODE = AgentInfo("1a2b3c4d-5e6f", host="node-1", node_rank=1, targets=(RANK,))


def lines(**changes: object) -> list[str]:
    """Return what is told when the rank changes like this."""
    return [news.text for news in news_of(NODE, replace(NODE, targets=(replace(RANK, **changes),)), NOW)]


def test_a_new_agent_is_one_line() -> None:
    """An agent is told with everything it serves."""
    other = replace(RANK, port=5680, rank=2, state=State.WAITING)
    node = replace(NODE, targets=(RANK, other), forwards=(6006,))
    assert [
        News(
            "found node-1/1a2b3c4d (node 1) serves 5680-5681 (rank 3 running, rank 2 waiting for a debugger) "
            "and forwards 6006"
        )
    ] == list(news_of(None, node, NOW))


def test_an_agent_of_fixed_ports() -> None:
    """Ports without a rank are told as ports, and once, even if they are forwards as well."""
    node = AgentInfo("1a2b3c4d", host="box", targets=(TargetInfo(5999),), forwards=(5999,))
    assert "box/1a2b3c4d serves 5999" == describe_agent(node, NOW)


def test_an_agent_without_anything() -> None:
    """An agent whose processes have not registered yet serves nothing."""
    assert "box/1a2b3c4d serves nothing" == describe_agent(AgentInfo("1a2b3c4d", host="box"), NOW)


def test_of_many_targets_only_the_special_ones_are_described() -> None:
    """A node with sixteen ranks is still one readable line."""
    targets = [TargetInfo(5678 + rank, rank=rank, state=State.RUNNING) for rank in range(16)]
    targets[3] = replace(targets[3], attachment=BOB)
    node = replace(NODE, targets=tuple(targets))
    assert (
        "node-1/1a2b3c4d (node 1) serves 5678-5693 (ranks 0-15, rank 3 held by bob@laptop for 4 min)"
        == describe_agent(node, NOW)
    )


def test_nothing_new_is_no_news() -> None:
    """An announcement that repeats the last one is silent."""
    assert [] == lines()
    assert [] == lines(since=950.0)


def test_holding_and_letting_go() -> None:
    """A debugger that comes and goes is told with its user."""
    held = {"attachment": BOB}
    assert ["rank 3 on node-1 held by bob@laptop"] == lines(**held)
    before = replace(NODE, targets=(replace(RANK, **held),))
    assert ["rank 3 on node-1 is free: bob@laptop left after 4 min"] == [
        news.text for news in news_of(before, NODE, NOW)
    ]
    assert ["rank 3 held by bob@laptop for 4 min"] == held_texts([before], NOW)


def test_a_crash_is_an_alarm() -> None:
    """A crash says what happened, what to press and how long there is."""
    crashed = replace(RANK, state=State.CRASHED, detail="ZeroDivisionError: division by zero", until=NOW + 1799.5)
    after = replace(NODE, targets=(crashed,))
    text = "rank 3 on node-1 crashed: ZeroDivisionError: division by zero; press F5 on port 5681 within 30 min"
    assert [News(text, is_warning=True, is_alarm=True)] == list(news_of(NODE, after, NOW))
    assert text in [news.text for news in news_of(None, after, NOW)]
    assert [] == list(news_of(after, replace(NODE, targets=(replace(crashed, since=999.0),)), NOW))


def test_a_crash_that_is_looked_at_is_no_alarm() -> None:
    """Once somebody is there, nobody has to be called."""
    held = {"state": State.CRASHED, "detail": "ValueError", "attachment": BOB}
    assert ["rank 3 on node-1 held by bob@laptop"] == lines(**held)


def test_waiting_and_running_on() -> None:
    """A process that waits says which port to press F5 on; afterwards it runs."""
    assert ["rank 3 on node-1 waits for a debugger: press F5 on port 5681"] == lines(state=State.WAITING)
    text = "rank 3 on node-1 waits for a debugger: press F5 on port 5681 within 40 s"
    assert [text] == lines(state=State.WAITING, until=NOW + 39.9)
    waiting = replace(NODE, targets=(replace(RANK, state=State.WAITING),))
    assert ["rank 3 on node-1 runs"] == [news.text for news in news_of(waiting, NODE, NOW)]


def test_a_restart() -> None:
    """A process that took the place of another is told with both pids."""
    assert ["rank 3 on node-1 was restarted: pid 44 -> 50"] == lines(pid=50)


def test_targets_that_come_and_go() -> None:
    """Those that come are one line, those that leave one each."""
    empty = replace(NODE, targets=())
    assert ["node-1 serves 5681 as well (rank 3 running)"] == [news.text for news in news_of(empty, NODE, NOW)]
    assert ["rank 3 on node-1 is gone (pid 44)"] == [news.text for news in news_of(NODE, empty, NOW)]


def test_forwards_that_change() -> None:
    """A node that offers other ports says so."""
    assert ["node-1 forwards 6006"] == [news.text for news in news_of(NODE, replace(NODE, forwards=(6006,)), NOW)]

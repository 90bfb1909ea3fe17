"""Facts about the times at which lines are shown."""

from dataclasses import replace

from relay_client.editor.messages import JobView
from relay_client.editor.notices import (
    MAX_PAUSE,
    PAUSE_TIMEOUT,
    InterruptionNotices,
    PauseNotices,
    PeerTimeoutNotices,
    WaitingNotices,
)

VIEW = JobView(5678, "myhc")


def test_lines_are_never_more_than_ten_minutes_apart() -> None:
    """The pause between two lines doubles up to a limit."""
    lines, shown, now = WaitingNotices(0), [], 0.0
    while now < 10_000:
        now = lines.next_deadline
        shown.append(now)
        assert 1 == len(lines.due(VIEW, now))
    assert [1, 10, 20, 40, 80, 160, 320, 640, 1240] == shown[:9]
    assert MAX_PAUSE == shown[-1] - shown[-2]


def test_the_reason_of_an_interruption_comes_before_that_of_the_wait() -> None:
    """While the tunnel has no connection, that is what is waited for."""
    lines = WaitingNotices(0)
    lines.set_reason("the debugger is starting", 0)
    ((text, _category),) = lines.due(replace(VIEW, away_reason="no data received"), 5)
    assert "waiting for port 5678 on 'myhc' (5 s so far): no data received" == text


def test_each_interruption_is_shown_once() -> None:
    """The second interruption has its own two lines."""
    lines, away = InterruptionNotices(), replace(VIEW, away_reason="lost")
    for start in (0, 100):
        assert [] == lines.update(away, start)
        assert start + 1 == lines.next_deadline
        assert 1 == len(lines.due(away, start + 1))
        assert (None, []) == (lines.next_deadline, lines.due(away, start + 2))
        assert [("the connection to port 5678 was restored after 3 s", "console")] == lines.update(VIEW, start + 3)


def test_how_long_other_ranks_wait_for_a_stopped_one() -> None:
    """Three lines for each stop: at once, when a quarter is left, and at the end; none after the target has resumed."""
    lines, running = PeerTimeoutNotices(), replace(VIEW, label="rank 1", peer_timeout=600.0)
    stopped = replace(running, is_stopped=True)
    for start in (0, 1000):
        assert [] == lines.update(running, start)
        ((first, _),) = lines.update(stopped, start)
        assert (
            "the other ranks wait at most 10 min for rank 1 (timeout of the process group); then the job may fail"
            == first
        )
        assert ([], start + 450) == (lines.update(stopped, start + 1), lines.next_deadline)
        ((second, _),) = lines.due(stopped, start + 450)
        assert second.startswith("the other ranks wait 2 min more for rank 1")
        ((third, _),) = lines.due(stopped, start + 600)
        assert third.startswith("the other ranks have waited 10 min for rank 1")
        assert (None, []) == (lines.next_deadline, lines.due(stopped, start + 700))
    lines.update(running, 2000)
    lines.update(stopped, 2001)
    assert ([], None) == (lines.update(running, 2002), lines.next_deadline)
    for silent in replace(stopped, peer_timeout=None), replace(stopped, is_alone=True):
        assert [] == PeerTimeoutNotices().update(silent, 0)


def test_a_pause_without_effect_is_one_line() -> None:
    """The line comes after two seconds, once for each pause; none if the target stops, or if the tunnel is down."""
    lines, away = PauseNotices(), replace(VIEW, away_reason="lost")
    for start in (0, 100):
        lines.requested(start)
        assert (start + PAUSE_TIMEOUT, []) == (lines.next_deadline, lines.due(VIEW, start + 1))
        text = "port 5678 is running C code and will stop when it returns to Python"
        assert [(text, "console")] == lines.due(VIEW, start + PAUSE_TIMEOUT)
        assert (None, []) == (lines.next_deadline, lines.due(VIEW, start + 9))
    lines.requested(200)
    lines.ended()
    assert (None, []) == (lines.next_deadline, lines.due(VIEW, 300))
    lines.requested(400)
    assert [] == lines.due(away, 402)

"""Facts about the times at which lines are shown."""

from dataclasses import replace

from relay_client.editor.job_view import JobView
from relay_client.editor.notices import MAX_PAUSE, InterruptionNotices, WaitingNotices

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
    lines.set_reason("the debugger is starting", 0, must_act=False)
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
    assert "<InterruptionNotices since None>" == repr(lines)
    assert "<WaitingNotices ''>" == repr(WaitingNotices(0))

"""Facts about the description of what a target is doing."""

from dataclasses import replace

import pytest

from relay_client.ranks.view import Kind, RankView, StopReport, rank_view
from relay_core.agent_api.announcement import Attachment, State, TargetInfo

RUNNING = TargetInfo(5680, 2, state=State.RUNNING, since=700.0)
WAITING = replace(RUNNING, state=State.WAITING)
CRASHED = replace(RUNNING, state=State.CRASHED, detail="ValueError: no")
BOB = Attachment("bob@laptop", 750.0)
STOPPED = replace(BOB, is_stopped=True, stopped_at="train.py:41", stopped_since=940.0)
RESUMED = replace(BOB, is_stopped=False, resumed_since=950.0)


@pytest.mark.parametrize(
    ("target", "view"),
    [
        (RUNNING, RankView(Kind.RUNNING, "running", "", 700.0)),
        (WAITING, RankView(Kind.WAITING, "waiting for a debugger", "", 700.0)),
        (
            replace(WAITING, detail="breakpoint() at a.py:1"),
            RankView(Kind.WAITING, "waiting for a debugger (breakpoint() at a.py:1)", "", 700.0),
        ),
        (CRASHED, RankView(Kind.CRASHED, "crashed: ValueError: no", "", 700.0)),
        (replace(CRASHED, place="a.py:7"), RankView(Kind.CRASHED, "crashed: ValueError: no", "a.py:7", 700.0)),
        (replace(CRASHED, detail=""), RankView(Kind.CRASHED, "crashed", "", 700.0)),
        (TargetInfo(5999), RankView(Kind.UNKNOWN)),
    ],
)
def test_target_without_a_debugger(target: TargetInfo, view: RankView) -> None:
    """Its state decides; the detail of the state is in the text."""
    assert view == rank_view(target)


@pytest.mark.parametrize(
    ("attachment", "view"),
    [
        (BOB, RankView(Kind.RUNNING, "running", "", 700.0)),
        (RESUMED, RankView(Kind.RUNNING, "running", "", 950.0)),
        (STOPPED, RankView(Kind.STOPPED, "stopped at train.py:41", "train.py:41", 940.0)),
        (replace(STOPPED, stopped_at=""), RankView(Kind.STOPPED, "stopped", "", 940.0)),
    ],
)
def test_attached_debugger(attachment: Attachment, view: RankView) -> None:
    """Whether the debugger has stopped the process decides, even if the process is announced as waiting."""
    assert view == rank_view(replace(RUNNING, attachment=attachment))
    assert view == rank_view(replace(WAITING, attachment=attachment))


@pytest.mark.parametrize("attachment", [None, RESUMED])
def test_rank_that_waits_for_others(attachment: Attachment | None) -> None:
    """It is running, with the operation as its text and without an age; a stop, a crash and a wait precede."""
    waits = "in all_reduce, waiting for rank 2"
    assert RankView(Kind.RUNNING, waits) == rank_view(replace(RUNNING, attachment=attachment), waits=waits)
    for other in (replace(RUNNING, attachment=STOPPED), CRASHED, WAITING):
        assert rank_view(other) == rank_view(other, waits=waits)


@pytest.mark.parametrize("attachment", [BOB, STOPPED, RESUMED])
def test_crashed_target_with_a_debugger(attachment: Attachment) -> None:
    """It stays crashed, with the place if the debugger has stopped it."""
    place = "train.py:41" if attachment is STOPPED else ""
    assert RankView(Kind.CRASHED, "crashed: ValueError: no", place, 700.0) == rank_view(
        replace(CRASHED, attachment=attachment)
    )


@pytest.mark.parametrize("target", [RUNNING, WAITING, CRASHED, replace(RUNNING, attachment=STOPPED)])
def test_a_target_whose_port_leads_elsewhere(target: TargetInfo) -> None:
    """It is unreachable, whatever its process is doing, and the process that has the port is named."""
    text = f"unreachable: port {target.port} leads to node-0 pid 12"
    assert RankView(Kind.UNREACHABLE, text) == rank_view(target, port_owner="node-0 pid 12")


def test_stop_at_an_uncaught_exception() -> None:
    """The target has crashed, whether this user's editor or somebody else's debugger has stopped it there."""
    crashed = RankView(Kind.CRASHED, "crashed: KeyError: 7", "train.py:41", 940.0)
    theirs = replace(STOPPED, uncaught="KeyError: 7")
    assert crashed == rank_view(replace(RUNNING, attachment=theirs))
    mine = StopReport("exception", 960.0, "/home/bob/train.py", 41, uncaught="KeyError: 7")
    assert replace(crashed, since=960.0) == rank_view(replace(RUNNING, attachment=RESUMED), mine)
    later = StopReport("step", 970.0, "/home/bob/train.py", 42)
    assert "stopped at train.py:42" == rank_view(replace(RUNNING, attachment=theirs), later).text


def test_stop_of_this_user() -> None:
    """It is newer than the announcement, which has the place until the editor asks for it."""
    stop = StopReport("breakpoint", 960.0, "/home/bob/data.py", 7)
    assert RankView(Kind.STOPPED, "stopped at data.py:7", "data.py:7", 960.0) == rank_view(
        replace(RUNNING, attachment=RESUMED), stop
    )
    assert RankView(Kind.STOPPED, "stopped at train.py:41", "train.py:41", 960.0) == rank_view(
        replace(RUNNING, attachment=STOPPED), StopReport("breakpoint", 960.0)
    )
    assert RankView(Kind.CRASHED, "crashed: ValueError: no", "data.py:7", 700.0) == rank_view(CRASHED, stop)


@pytest.mark.parametrize(
    ("target", "clause"),
    [
        (RUNNING, "is running"),
        (WAITING, "is waiting for a debugger"),
        (CRASHED, "crashed: ValueError: no"),
        (TargetInfo(5999), "is registered"),
    ],
)
def test_clause(target: TargetInfo, clause: str) -> None:
    """The end of a sentence about the target."""
    assert clause == rank_view(target).clause

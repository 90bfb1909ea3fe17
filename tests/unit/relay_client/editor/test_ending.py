"""Facts about the end of a session that is held back for its reason; more of them are in test_session_end.py."""

from dataclasses import replace

from relay_client.editor.ending import SessionEnd
from relay_client.editor.messages import JobView
from relay_client.editor.notices import Outbox
from relay_client.ranks.view import END_PATIENCE, EXIT_PATIENCE
from relay_core.agent_api.announcement import Ending
from relay_core.layers.layer import EndLocal, ToLocal

VIEW = JobView(5678, label="rank 0 on node")
TERMINATED = ToLocal(b"terminated")


def test_the_end_is_released_with_its_reason() -> None:
    """It is due when the reason is final, and at the latest after END_PATIENCE."""
    end = SessionEnd(Outbox())
    assert (None, False, False) == (end.deadline, end.is_held, end.is_due(VIEW, 1e9))
    end.hold(TERMINATED, VIEW, 10)
    end.hold(EndLocal(), VIEW, 10.5)
    assert (10 + END_PATIENCE, True) == (end.deadline, end.is_held)
    ended = replace(VIEW, ending=Ending(5678, status=1))
    assert [False, True, True] == [end.is_due(VIEW, 10), end.is_due(VIEW, 10 + END_PATIENCE), end.is_due(ended, 10)]
    assert ([TERMINATED, EndLocal()], [], None) == (end.release(), end.release(), end.deadline)


def test_a_status_that_follows_is_waited_for() -> None:
    """A process that exits has its status later; without an end of the debugger nothing is waited for."""
    end = SessionEnd(Outbox())
    end.announced(is_final=False, now=10)
    assert end.deadline is None
    end.hold(TERMINATED, VIEW, 10)
    end.announced(is_final=False, now=10)
    assert 10 + EXIT_PATIENCE == end.deadline

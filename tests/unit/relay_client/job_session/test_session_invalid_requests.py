"""Facts about requests that an editor should not send to the session of all ranks: each is answered."""

import pytest

from tests.support.sessions.scripted_ranks import FILE, attached, stopped


def test_second_attach() -> None:
    """A second `attach` fails, and the session continues with the first one."""
    stage, (rank,) = stopped(0)
    assert "this session has already attached" == stage.refusal("attach", type="debugpy")
    assert 1 == rank.names().count("attach")
    stage.ask("next", threadId=stage.thread(0))
    assert 1 == rank.names().count("next")


@pytest.mark.parametrize(
    "source", [{}, {"name": "train.py"}, {"path": 5}, {"path": None, "sourceReference": 0}, None, "x"]
)
def test_breakpoints_in_a_source_without_a_path(source: object) -> None:
    """`setBreakpoints` fails, and no rank receives it: debugpy would end the session."""
    stage, (rank,) = attached(0)
    before = len(rank.log)
    reason = stage.refusal("setBreakpoints", source=source, breakpoints=[{"line": 1}])
    assert "the source of the breakpoints has no path" == reason
    assert before == len(rank.log)
    assert [True] == [
        each["verified"]
        for each in stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 1}])["breakpoints"]
    ]

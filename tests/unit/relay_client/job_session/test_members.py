"""Facts about the child processes of ranks as members of the debug session for all ranks, with scripted ranks."""

from typing import Any

import pytest

from tests.support.sessions.scripted_ranks import Stage, attached


@pytest.mark.parametrize(("configuration", "expected"), [({"subProcess": True}, True), ({}, False)])
def test_children_are_followed_if_the_editor_wants_that(configuration: dict[str, Any], expected: bool) -> None:
    """Ranks follow their child processes if the configuration has `"subProcess": true`."""
    stage = Stage()
    stage.ask("initialize", clientID="vscode", adapterID="debugpy", supportsStartDebuggingRequest=True)
    stage.send("attach", type="debugpy", **configuration)
    ranks = [stage.join(0), stage.join(1)]
    stage.settle()
    attaches = [rank.log[rank.names().index("attach")]["arguments"] for rank in ranks]
    assert [expected, expected] == [arguments["subProcess"] for arguments in attaches]


def test_a_child_becomes_a_member() -> None:
    """A child process that a rank offers is attached to by its id, with the breakpoints, and named after its rank."""
    stage, [rank] = attached(3)
    rank.offer(4711)
    stage.settle()
    assert [(3, 4711)] == stage.offered
    child = stage.join(3, 4711)
    stage.settle()
    assert ["initialize", "attach", "setBreakpoints", "configurationDone"] == child.names()[:4]
    assert 4711 == child.log[1]["arguments"]["subProcessId"]
    names = [each["name"] for each in stage.ask("threads")["threads"]]
    assert ["rank 3 · MainThread", "rank 3 / process 4711 · MainThread"] == names[::2]


def test_children_continue_with_their_ranks_and_step_alone() -> None:
    """A step moves either ranks or child processes, `continue` moves both."""
    stage, ranks = attached(0, 1)
    children = [stage.join(0, 7), stage.join(1, 8)]
    stage.settle()
    for each in (*ranks, *children):
        each.stop()
    stage.settle()
    stage.ask("next", threadId=stage.thread(0))
    assert [1, 1, 0, 0] == [each.names().count("next") for each in (*ranks, *children)]
    stage.ask("next", threadId=stage.thread("0 / process 7"))
    assert [1, 1, 1, 1] == [each.names().count("next") for each in (*ranks, *children)]
    stage.ask("continue", threadId=stage.thread(0))
    assert [1, 1, 1, 1] == [each.names().count("continue") for each in (*ranks, *children)]


def test_the_exit_code_of_a_child_does_not_count() -> None:
    """A session whose ranks have succeeded ends with 0 although a child process has failed."""
    stage, [rank] = attached(0)
    child = stage.join(0, 7)
    stage.settle()
    child.exit(1)
    rank.exit(0)
    stage.settle()
    stage.session.conclude("all ranks have ended")
    stage.flush()
    assert [{"exitCode": 0}] == stage.events("exited")

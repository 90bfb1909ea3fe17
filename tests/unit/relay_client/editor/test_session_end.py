"""Facts about the end of an editor's session: it is shown why, with the exit status or signal of the job."""

from dataclasses import replace

import pytest

from relay_client.editor.messages import JobView
from relay_client.ranks.view import END_PATIENCE, EXIT_PATIENCE
from relay_core.agent_api.announcement import Ending
from relay_core.layers.layer import EndLocal, ResetLocal
from tests.support.sessions.editor_session import INITIALIZE, RANK, TERMINATED, Editor, attached, response


@pytest.mark.parametrize(
    ("ending", "line", "code"),
    [
        (Ending(5678, status=0), "console: rank 0 on node ended with status 0", 0),
        (Ending(5678, status=1), "important: rank 0 on node ended with status 1", 1),
        (
            Ending(5678, status=1, error="ValueError: boom"),
            "important: rank 0 on node ended with status 1: ValueError: boom",
            1,
        ),
        (
            Ending(5678, signal=9),
            "important: rank 0 on node was killed by SIGKILL (the usual cause is lack of memory)",
            137,
        ),
        (Ending(5678, signal=15), "important: rank 0 on node was killed by SIGTERM", 143),
    ],
)
def test_the_end_is_shown_with_its_reason(ending: Ending, line: str, code: int) -> None:
    """The reason and the exit code come before the debugger's `terminated`."""
    editor = attached()
    editor.answer(TERMINATED)
    assert [] == editor.received
    editor.update(replace(RANK, ending=ending))
    assert ["output", "exited", "terminated"] == [message["event"] for message in editor.received]
    assert {"exitCode": code} == editor.received[1]["body"]
    assert [line] == editor.lines()


def test_the_only_process_of_a_job_is_the_job() -> None:
    """A job without ranks is called the job."""
    editor = attached(replace(RANK, is_alone=True))
    editor.update(replace(RANK, is_alone=True, ending=Ending(5678, status=3)))
    editor.answer(TERMINATED)
    assert ["important: the job ended with status 3"] == editor.lines()


def test_an_end_without_announcement_is_not_delayed_for_long() -> None:
    """If the agent announces nothing in time, `terminated` is passed on with a line that states this."""
    editor = attached()
    editor.answer(TERMINATED)
    editor.wait(END_PATIENCE - 0.1)
    assert [] == editor.received
    editor.wait(END_PATIENCE)
    assert ["output", "terminated"] == [message["event"] for message in editor.received]


def test_a_process_that_is_exiting_has_more_time() -> None:
    """The status of a process that its agent has announced as exiting is waited for longer, before and after."""
    exiting = replace(RANK, ending=Ending(5678, error="ValueError: boom", is_final=False))
    early, late = attached(), attached()
    early.update(exiting)
    early.answer(TERMINATED)
    late.answer(TERMINATED)
    late.update(exiting)
    for editor in (early, late):
        editor.wait(EXIT_PATIENCE - 0.1)
        assert [] == editor.received
        editor.wait(EXIT_PATIENCE)
        assert "terminated" == editor.received[-1]["event"]
        assert ["console: rank 0 on node has ended: ValueError: boom"] == editor.lines()


def test_an_end_that_the_debugger_does_not_report_is_reported_here() -> None:
    """If the job was killed with its debugger, the editor still receives the reason and `terminated`."""
    editor = attached()
    editor.update(replace(RANK, ending=Ending(5678, signal=9)))
    editor.wait(END_PATIENCE)
    assert ["output", "exited", "terminated"] == [message["event"] for message in editor.received]
    editor.take(editor.stack.receive_peer_eof(2))
    assert [EndLocal()] == editor.ends


def test_a_debugger_that_closes_without_a_word_is_reported() -> None:
    """The end of the connection waits for the reason, too."""
    editor = attached()
    editor.take(editor.stack.receive_peer_eof(0))
    assert [] == editor.ends
    editor.wait(END_PATIENCE)
    assert ["output", "terminated"] == [message["event"] for message in editor.received]
    assert [EndLocal()] == editor.ends


def test_a_debugger_that_ends_without_its_process_is_reported() -> None:
    """If debugpy's adapter is killed, the process that it debugged continues, and the editor may attach again."""
    editor = attached(replace(RANK, is_running=True))
    editor.take(editor.stack.receive_peer_eof(0))
    editor.wait(END_PATIENCE)
    assert ["output", "terminated"] == [message["event"] for message in editor.received]
    sentence = "the debugger exited unexpectedly; rank 0 on node continues without a debugger; attaching again"
    assert [f"important: {sentence}"] == editor.lines()


@pytest.mark.parametrize("view", [RANK, replace(RANK, announces_endings=False)])
def test_an_editor_that_disconnects_gets_no_reason(view: JobView) -> None:
    """After the editor's own `disconnect`, everything passes at once and unchanged."""
    editor = attached(view)
    disconnect = {"seq": 9, "type": "request", "command": "disconnect", "arguments": {"terminateDebuggee": False}}
    editor.send(disconnect)
    editor.answer(TERMINATED, response(9, "disconnect"))
    editor.take(editor.stack.receive_peer_eof(0))
    assert [disconnect] == editor.debugger
    assert [TERMINATED, response(9, "disconnect")] == editor.received
    assert [EndLocal()] == editor.ends


@pytest.mark.parametrize(("client", "restarts"), [("vscode", True), ("neovim", True), ("emacs", False), (None, False)])
def test_a_lost_agent_is_reported_and_the_editor_attaches_again(client: str | None, restarts: bool) -> None:
    """`terminated` has `restart` for editors that honour it, and the line before it announces that."""
    editor = Editor(RANK)
    editor.session.has_stream = True
    editor.send({**INITIALIZE, "arguments": {"clientID": client}})
    editor.answer(response(1, "initialize"))
    editor.received.clear()
    editor.take(editor.stack.receive_peer_lost(0))
    assert [ResetLocal()] == editor.ends
    editor.conclude("the agent is gone", may_return=True)
    assert ["output", "terminated"] == [message["event"] for message in editor.received]
    assert restarts == ("restart" in editor.received[1]["body"])
    assert restarts == editor.received[0]["body"]["output"].endswith("the agent is gone; attaching again\n")
    editor.send({"seq": 9, "type": "request", "command": "disconnect", "arguments": {"restart": True}})
    assert (True, 9) == (editor.received[2]["success"], editor.received[2]["request_seq"])


def test_a_job_that_has_ended_for_good_is_not_waited_for() -> None:
    """If the agent has announced how the job has ended, a lost tunnel does not make the editor attach again."""
    editor = attached()
    editor.session.update(replace(RANK, ending=Ending(5678, status=1)), 0)
    editor.conclude("the agent is gone", may_return=True)
    assert {} == editor.received[-1]["body"]
    assert ["important: rank 0 on node ended with status 1"] == editor.lines()


def test_a_request_that_the_lost_debugger_leaves_open_is_answered() -> None:
    """VS Code waits two seconds for the response to `disconnect`."""
    editor = attached()
    editor.send({"seq": 9, "type": "request", "command": "disconnect", "arguments": {}})
    editor.conclude("the agent is gone", may_return=True)
    assert [("disconnect", 9)] == [(message["command"], message["request_seq"]) for message in editor.received]


@pytest.mark.parametrize(
    ("events", "is_shown"), [(["stopped"], True), (["stopped", "continued"], False), ([], False)], ids=str
)
def test_a_child_process_that_ends_while_it_is_stopped(events: list[str], is_shown: bool) -> None:
    """A line before `terminated` states it, and what may have ended it; there is none if it ends as it runs."""
    editor = Editor(RANK)
    editor.session.has_stream = True
    editor.send(INITIALIZE)
    editor.answer(response(1, "initialize"))
    editor.send({"seq": 2, "type": "request", "command": "attach", "arguments": {"subProcessId": 4711}})
    editor.answer(*({"seq": 9, "type": "event", "event": name, "body": {"threadId": 1}} for name in events))
    editor.received.clear()
    editor.answer(TERMINATED)
    assert [*["output"] * is_shown, "terminated"] == [message["event"] for message in editor.received]
    sentence = "important: the child process 4711 ended while it was stopped. hint: if its parent ends children"
    assert is_shown == any(line.startswith(sentence) for line in editor.lines())

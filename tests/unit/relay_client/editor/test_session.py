"""Facts about the layer next to an editor, without a network: what the editor receives, and when."""

from dataclasses import replace
from typing import Any

import pytest

from relay_client.editor.job import JobView
from relay_client.editor.session import END_PATIENCE, EXIT_PATIENCE, EditorSession
from relay_core.agent_api.ending import Ending
from relay_core.dap.framing import MessageDecoder, encode
from relay_core.layers.layer import EndLocal, EndPeer, Output, ResetLocal, ToLocal, ToPeer

VIEW = JobView(5678, "myhc")
RANK = replace(VIEW, label="rank 0 on node", host="node", announces_endings=True)
INITIALIZE = {"seq": 1, "type": "request", "command": "initialize", "arguments": {"clientID": "vscode"}}
ATTACH = {"seq": 2, "type": "request", "command": "attach", "arguments": {}}
TERMINATED = {"seq": 50, "type": "event", "event": "terminated", "body": {}}


class Editor:
    """An editor, its layer, and a debugger that answers when a test says so."""

    def __init__(self, view: JobView = VIEW, **options: Any) -> None:
        self.now = 0.0
        self.session = EditorSession(view, self.now, **options)
        self.received: list[dict[str, Any]] = []
        self.debugger: list[dict[str, Any]] = []
        self.ends: list[Output] = []
        """Outputs other than bytes."""
        self._from_session, self._to_debugger = MessageDecoder(), MessageDecoder()

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, ToLocal):
                self.received += self._from_session.receive_data(output.data)
            elif isinstance(output, ToPeer):
                self.debugger += self._to_debugger.receive_data(output.data)
            else:
                self.ends.append(output)

    def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.take(self.session.receive_local(encode(message), self.now))

    def answer(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.take(self.session.receive_peer(encode(message), self.now))

    def update(self, view: JobView) -> None:
        self.session.update(view, self.now)
        self.take(self.session.tick(self.now))

    def wait(self, until: float) -> None:
        """Let time pass; the layer is called at its deadlines only."""
        while (deadline := self.session.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.take(self.session.tick(self.now))
        self.now = until

    def lines(self) -> list[str]:
        """Return the output events received so far, with their categories, and forget everything received."""
        found = [message["body"] for message in self.received if message.get("event") == "output"]
        self.received.clear()
        return [f"{body['category']}: {body['output'].removeprefix('relay-client: ').rstrip()}" for body in found]


def attached(view: JobView = RANK, **options: Any) -> Editor:
    """Return an editor with a session, about which nothing has been shown yet."""
    editor = Editor(view, **options)
    editor.session.has_stream = True
    editor.send(INITIALIZE)
    editor.answer(response(1, "initialize"))
    editor.send(ATTACH)
    editor.answer(response(2, "attach"))
    editor.received.clear()
    editor.debugger.clear()
    return editor


def response(request: int, command: str, **fields: Any) -> dict[str, Any]:
    return {"seq": 40, "type": "response", "request_seq": request, "command": command, "success": True, **fields}


# Waiting:


def test_a_waiting_editor_is_shown_why_ever_less_often() -> None:
    """The first line comes after a second, then after 10, 20, 40 s and so on; the second one is also a notification."""
    editor = Editor()
    editor.send(INITIALIZE)
    editor.session.wait_for("no agent is listening yet", 0)
    editor.wait(100)
    text = "waiting for port 5678 on 'myhc': no agent is listening yet, "
    assert [
        f"console: {text}1 s",
        f"important: {text}10 s",
        *(f"console: {text}{time}" for time in ("20 s", "40 s", "1 min")),
    ] == editor.lines()


def test_a_new_reason_is_shown_at_once() -> None:
    """The line with a new reason does not wait for the next one to be due."""
    editor = Editor()
    editor.send(INITIALIZE)
    editor.session.wait_for("no agent is listening yet", 0)
    editor.wait(3)
    editor.lines()
    editor.session.wait_for("no agent on 'myhc' serves port 5678", 3, must_act=True)
    editor.wait(4)
    assert ["important: waiting for port 5678 on 'myhc': no agent on 'myhc' serves port 5678, 3 s"] == editor.lines()


def test_only_editors_are_shown_anything() -> None:
    """A program that does not speak DAP, or has sent nothing yet, receives nothing of this layer."""
    silent = Editor()
    silent.wait(100)
    assert (None, []) == (silent.session.next_deadline(), silent.received)
    session = EditorSession(VIEW, 0)
    assert [ToPeer(b"GET / HTTP/1.1")] == session.receive_local(b"GET / HTTP/1.1", 0)
    assert (True, None) == (session.is_finished, session.next_deadline())


def test_nothing_is_shown_once_the_debugger_has_answered() -> None:
    """After the response to `initialize`, the lines about waiting end."""
    editor = attached()
    editor.wait(100)
    assert [] == editor.received


def test_a_job_that_will_not_come_fails_initialize() -> None:
    """`initialize` is answered with the sentence, once."""
    editor = Editor()
    editor.send(INITIALIZE)
    editor.take([ToLocal(editor.session.conclude("the relay refused the credentials", may_return=False))])
    (failure,) = editor.received
    assert (False, "initialize", 1) == (failure["success"], failure["command"], failure["request_seq"])
    assert (
        "cannot debug port 5678: the relay refused the credentials"
        == failure["message"]
        == failure["body"]["error"]["format"]
    )
    assert b"" == editor.session.conclude("again", may_return=False)


def test_initialize_may_come_after_the_reason_why_it_fails() -> None:
    """A connection that was refused before the editor has sent anything fails its first request."""
    editor = Editor()
    assert b"" == editor.session.conclude("the relay refused the credentials", may_return=False)
    editor.send(INITIALIZE)
    assert ["cannot debug port 5678: the relay refused the credentials"] == [
        message["message"] for message in editor.received
    ]
    assert [EndLocal(), EndPeer()] == editor.ends


def test_an_editor_that_stops_waiting_is_answered() -> None:
    """`disconnect` without a stream is answered here, and ends the connection."""
    editor = Editor()
    editor.send(INITIALIZE, {"seq": 2, "type": "request", "command": "disconnect", "arguments": {"restart": False}})
    (answer,) = editor.received
    assert ("disconnect", 2, True) == (answer["command"], answer["request_seq"], answer["success"])
    assert [EndLocal(), EndPeer()] == editor.ends


# The tunnel:


def test_an_interruption_and_its_end_are_shown() -> None:
    """One line when the tunnel has had no connection for a second, and one when it has one again."""
    editor = attached()
    away = replace(RANK, away_reason="no data received in time")
    editor.update(away)
    editor.wait(0.9)
    assert [] == editor.lines()
    editor.wait(20)
    editor.update(away)
    editor.update(RANK)
    first, second = editor.lines()
    assert first.startswith("console: the connection to rank 0 on node is interrupted: no data received in time; ")
    assert "console: the connection to rank 0 on node is back after 20 s" == second


def test_a_short_interruption_is_not_shown() -> None:
    """A transport that is replaced within a second is not an event for an editor."""
    editor = attached()
    editor.update(replace(RANK, away_reason="superseded"))
    editor.wait(0.5)
    editor.update(RANK)
    editor.wait(10)
    assert [] == editor.received


def test_lines_wait_for_the_end_of_a_long_message() -> None:
    """A line is never put inside a message of the debugger that is passed on in parts."""
    editor = attached()
    long = encode({"seq": 60, "type": "event", "event": "output", "body": {"output": "x" * 300_000}})
    editor.take(editor.session.receive_peer(long[:200_000], 0))
    editor.update(replace(RANK, away_reason="lost"))
    editor.wait(5)
    assert [] == editor.received
    editor.take(editor.session.receive_peer(long[200_000:], 5))
    assert ["x" * 300_000, "relay-client: the connection"] == [
        message["body"]["output"][:300_000] for message in editor.received[:1]
    ] + [message["body"]["output"][:28] for message in editor.received[1:]]


def test_numbers_do_not_go_backwards() -> None:
    """`seq` of our messages is that of the debugger's last message."""
    editor = attached()
    editor.answer({"seq": 77, "type": "event", "event": "output", "body": {"output": "x"}})
    editor.update(replace(RANK, away_reason="lost"))
    editor.wait(5)
    assert [77, 77] == [message["seq"] for message in editor.received]


# The end:


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
            "important: rank 0 on node was killed (signal 9, SIGKILL; the usual reason is a lack of memory)",
            137,
        ),
        (Ending(5678, signal=15), "important: rank 0 on node was killed (signal 15, SIGTERM)", 143),
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
    """If the agent announces nothing in time, `terminated` is passed on with a line that says so."""
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
    editor.take(editor.session.receive_peer_eof(2))
    assert [EndLocal()] == editor.ends


def test_a_debugger_that_closes_without_a_word_is_reported() -> None:
    """The end of the connection waits for the reason, too."""
    editor = attached()
    editor.take(editor.session.receive_peer_eof(0))
    assert [] == editor.ends
    editor.wait(END_PATIENCE)
    assert ["output", "terminated"] == [message["event"] for message in editor.received]
    assert [EndLocal()] == editor.ends


def test_a_debugger_that_ends_without_its_process_is_reported() -> None:
    """If debugpy's adapter is killed, the process that it debugged continues, and the editor may attach again."""
    editor = attached(replace(RANK, is_running=True))
    editor.take(editor.session.receive_peer_eof(0))
    editor.wait(END_PATIENCE)
    assert ["output", "terminated"] == [message["event"] for message in editor.received]
    assert ["important: the debugger has ended unexpectedly; rank 0 on node continues without it"] == editor.lines()


@pytest.mark.parametrize("view", [RANK, replace(RANK, announces_endings=False)])
def test_an_editor_that_disconnects_is_not_told_why(view: JobView) -> None:
    """After the editor's own `disconnect`, everything passes at once and unchanged."""
    editor = attached(view)
    disconnect = {"seq": 9, "type": "request", "command": "disconnect", "arguments": {"terminateDebuggee": False}}
    editor.send(disconnect)
    editor.answer(TERMINATED, response(9, "disconnect"))
    editor.take(editor.session.receive_peer_eof(0))
    assert [disconnect] == editor.debugger
    assert [TERMINATED, response(9, "disconnect")] == editor.received
    assert [EndLocal()] == editor.ends


@pytest.mark.parametrize(("client", "restarts"), [("vscode", True), ("neovim", True), ("emacs", False), (None, False)])
def test_a_lost_agent_is_reported_and_the_editor_attaches_again(client: str | None, restarts: bool) -> None:
    """`terminated` has `restart` for editors that honour it."""
    editor = Editor(RANK)
    editor.session.has_stream = True
    editor.send({**INITIALIZE, "arguments": {"clientID": client}})
    editor.answer(response(1, "initialize"))
    editor.received.clear()
    editor.take(editor.session.receive_peer_lost(0))
    assert [ResetLocal()] == editor.ends
    editor.take([ToLocal(editor.session.conclude("the agent is gone", may_return=True))])
    assert ["output", "terminated"] == [message["event"] for message in editor.received]
    assert restarts == ("restart" in editor.received[1]["body"])
    editor.send({"seq": 9, "type": "request", "command": "disconnect", "arguments": {"restart": True}})
    assert (True, 9) == (editor.received[2]["success"], editor.received[2]["request_seq"])


def test_a_job_that_has_ended_for_good_is_not_waited_for() -> None:
    """If the agent has announced how the job has ended, a lost tunnel does not make the editor attach again."""
    editor = attached()
    editor.session.update(replace(RANK, ending=Ending(5678, status=1)), 0)
    editor.take([ToLocal(editor.session.conclude("the agent is gone", may_return=True))])
    assert {} == editor.received[-1]["body"]
    assert ["important: rank 0 on node ended with status 1"] == editor.lines()


def test_a_request_that_the_lost_debugger_leaves_open_is_answered() -> None:
    """VS Code waits two seconds for the response to `disconnect`."""
    editor = attached()
    editor.send({"seq": 9, "type": "request", "command": "disconnect", "arguments": {}})
    editor.take([ToLocal(editor.session.conclude("the agent is gone", may_return=True))])
    assert [("disconnect", 9)] == [(message["command"], message["request_seq"]) for message in editor.received]


def test_sources_that_differ_are_shown() -> None:
    """The first file is also a notification; the others are lines."""
    editor = attached()
    for path in ("/home/me/a.py", "/home/me/b.py"):
        editor.session.source_differs(path)
    editor.take(editor.session.tick(0))
    text = "differs from the job's file on node: breakpoints and steps may be shown at the wrong lines"
    assert [f"important: /home/me/a.py {text}", f"console: /home/me/b.py {text}"] == editor.lines()


# Protection of the job:


def test_terminate_becomes_a_disconnect() -> None:
    """`terminate` is answered at once, and the debugger is asked to detach; its response is not passed on."""
    editor = attached()
    editor.send({"seq": 9, "type": "request", "command": "terminate", "arguments": {}})
    editor.answer(response(9, "disconnect"), TERMINATED)
    (request,) = editor.debugger
    assert ("disconnect", {"terminateDebuggee": False}) == (request["command"], request["arguments"])
    answers = [message for message in editor.received if message["type"] == "response"]
    assert [("terminate", True)] == [(answer["command"], answer["success"]) for answer in answers]
    assert TERMINATED == editor.received[-1]
    assert ["console: detached; the job continues (relay-client --allow-terminate lets an editor end it)"] == (
        editor.lines()
    )


def test_disconnect_never_ends_the_job() -> None:
    """`terminateDebuggee` is set to false, and all other arguments pass."""
    editor = attached()
    arguments = {"restart": False, "terminateDebuggee": True}
    editor.send({"seq": 9, "type": "request", "command": "disconnect", "arguments": arguments})
    (request,) = editor.debugger
    assert {"restart": False, "terminateDebuggee": False} == request["arguments"]


@pytest.mark.parametrize("command", ["terminate", "disconnect"])
def test_a_user_may_mean_it(command: str) -> None:
    """With `allow_terminate` both requests pass unchanged."""
    editor = attached(allow_terminate=True)
    request = {"seq": 9, "type": "request", "command": command, "arguments": {"terminateDebuggee": True}}
    editor.send(request)
    assert ([request], []) == (editor.debugger, editor.received)


def test_a_held_job_is_explained() -> None:
    """The answer `already being debugged` of debugpy becomes a sentence with the holder and the time."""
    editor = Editor(replace(RANK, holder="held by bob@laptop since 12:03"))
    editor.session.has_stream = True
    editor.send(INITIALIZE)
    editor.answer(response(1, "initialize"))
    editor.send(ATTACH)
    editor.answer(response(2, "attach", success=False, message="Server[pid=9677] is already being debugged."))
    assert "rank 0 on node is held by bob@laptop since 12:03" == editor.received[-1]["message"]


def test_repr() -> None:
    """The repr names the state."""
    assert "<EditorSession waiting, no stream>" == repr(EditorSession(VIEW, 0))
    assert "<EditorSession answered>" == repr(attached().session)

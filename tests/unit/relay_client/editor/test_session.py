"""Facts about the layer next to an editor, without a network: what the editor receives, and when."""

from dataclasses import replace

import pytest

from relay_client.editor.session import EditorSession
from relay_core.dap.framing import encode
from relay_core.layers.layer import EndLocal, EndPeer, ToPeer
from tests.support.sessions.editor_session import ATTACH, INITIALIZE, RANK, TERMINATED, VIEW, Editor, attached, response
from tests.support.sessions.layers import Alone


def test_a_waiting_editor_is_shown_why_ever_less_often() -> None:
    """The first line comes after a second, then after 10, 20, 40 s and so on; the second one is also a notification."""
    editor = Editor()
    editor.send(INITIALIZE)
    editor.session.wait_for("no agent is listening yet", 0)
    editor.wait(100)
    begin, end = "waiting for port 5678 on 'myhc' (", " so far): no agent is listening yet"
    assert [
        f"console: {begin}1 s{end}",
        f"important: {begin}10 s{end}",
        *(f"console: {begin}{time}{end}" for time in ("20 s", "40 s", "1 min")),
    ] == editor.lines()


def test_a_new_reason_is_shown_at_once() -> None:
    """The line with a new reason does not wait for the next one to be due."""
    editor = Editor()
    editor.send(INITIALIZE)
    editor.session.wait_for("no agent is listening yet", 0)
    editor.wait(3)
    editor.lines()
    editor.session.wait_for("no agent on 'myhc' serves port 5678", 3)
    editor.wait(4)
    line = "console: waiting for port 5678 on 'myhc' (3 s so far): no agent on 'myhc' serves port 5678"
    assert [line] == editor.lines()


def test_an_editor_that_listens_is_shown_nothing_before_it_attaches() -> None:
    """Its debugger runs already when the job connects, and its adapter would pass lines on only after `attach`."""
    editor = Editor(listens=True)
    editor.session.has_stream = True
    editor.send(INITIALIZE)
    editor.wait(100)
    assert (None, []) == (editor.session.next_deadline(), editor.received)


def test_an_editor_that_listens_is_not_asked_to_attach_again() -> None:
    """Its adapter decides that, from `restart` in the launch configuration."""
    editor = attached(listens=True)
    editor.conclude("the connection to the agent was lost: gone", may_return=True)
    output, terminated = editor.received
    assert ("relay-client: the connection to the agent was lost: gone\n", {}) == (
        output["body"]["output"],
        terminated["body"],
    )


def test_a_program_that_only_listens_is_shown_nothing() -> None:
    """A program on the port that is not a debug adapter receives nothing of this layer when the job has ended."""
    session = Alone(EditorSession(VIEW, 0, listens=True))
    session.layer.has_stream = True
    assert [EndLocal()] == session.receive_peer_eof(0)
    session.layer.conclude("the connection to the agent was lost", may_return=True)
    assert [] == session.start(0)


def test_only_editors_are_shown_anything() -> None:
    """A program that does not speak DAP, or has sent nothing yet, receives nothing of this layer."""
    silent = Editor()
    silent.wait(100)
    assert (None, []) == (silent.session.next_deadline(), silent.received)
    session = Alone(EditorSession(VIEW, 0))
    assert [ToPeer(b"GET / HTTP/1.1")] == session.receive_local(b"GET / HTTP/1.1", 0)
    assert (True, None) == (session.is_finished, session.layer.next_deadline())


def test_nothing_is_shown_once_the_debugger_has_answered() -> None:
    """After the response to `initialize`, the lines about waiting end."""
    editor = attached()
    editor.wait(100)
    assert [] == editor.received


def test_the_message_of_an_exception_does_not_hide_the_name_of_the_session() -> None:
    """VS Code shows the description of a stop in its place: it receives the type of the exception there."""
    editor = attached()
    body = {"reason": "exception", "threadId": 1, "text": "ValueError", "description": "no"}
    editor.answer({"seq": 9, "type": "event", "event": "stopped", "body": body})
    (event,) = editor.received
    assert {**body, "text": "ValueError: no", "description": "ValueError"} == event["body"]
    assert 9 == event["seq"]
    editor.answer({"seq": 10, "type": "event", "event": "stopped", "body": ["odd"]})
    assert ["odd"] == editor.received[-1]["body"]


def test_a_job_that_will_not_come_fails_initialize() -> None:
    """`initialize` is answered with the sentence, once."""
    editor = Editor()
    editor.send(INITIALIZE)
    editor.conclude("the relay refused the credentials")
    (failure,) = editor.received
    assert (False, "initialize", 1) == (failure["success"], failure["command"], failure["request_seq"])
    assert (
        "cannot debug port 5678: the relay refused the credentials"
        == failure["message"]
        == failure["body"]["error"]["format"]
    )
    editor.conclude("again")
    assert 1 == len(editor.received)


def test_initialize_may_come_after_the_reason_why_it_fails() -> None:
    """A connection that was refused before the editor has sent anything fails its first request."""
    editor = Editor()
    editor.conclude("the relay refused the credentials")
    assert [] == editor.received
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


PAUSE = {"seq": 9, "type": "request", "command": "pause", "arguments": {"threadId": 1}}
STOPPED = {"seq": 60, "type": "event", "event": "stopped", "body": {"reason": "pause", "threadId": 1}}


def test_a_pause_in_c_code_is_explained() -> None:
    """A rank that has not stopped two seconds after a pause is reported, once for each pause."""
    editor = attached()
    for start in (0.0, 100.0):
        editor.wait(start)
        editor.send(PAUSE)
        editor.wait(start + 1.9)
        assert [] == editor.lines()
        editor.wait(start + 50)
        line = "console: rank 0 on node is running C code and will stop when it returns to Python"
        assert [line] == editor.lines()
    assert [PAUSE, PAUSE] == editor.debugger


@pytest.mark.parametrize(
    "following", [STOPPED, {"seq": 10, "type": "request", "command": "disconnect", "arguments": {}}]
)
def test_a_pause_that_has_an_effect_is_not_explained(following: dict[str, object]) -> None:
    """Nothing is shown if the rank stops, or if the editor leaves."""
    editor = attached()
    editor.send(PAUSE)
    (editor.answer if following is STOPPED else editor.send)(following)
    editor.received.clear()
    editor.wait(50)
    assert (None, []) == (editor.session.next_deadline(), editor.lines())


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
    assert "console: the connection to rank 0 on node was restored after 20 s" == second


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
    editor.take(editor.stack.receive_peer(long[:200_000], 0))
    editor.update(replace(RANK, away_reason="lost"))
    editor.wait(5)
    assert [] == editor.received
    editor.take(editor.stack.receive_peer(long[200_000:], 5))
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


def test_sources_that_differ_are_shown() -> None:
    """The first file is also a notification; the others are lines."""
    editor = attached()
    for path in ("/home/me/a.py", "/home/me/b.py"):
        editor.session.source_compared(path, is_different=True)
    editor.take(editor.session.tick(0))
    text = "differs from the job's file on node: breakpoints and steps may be shown on the wrong lines"
    assert [f"important: a.py {text} (/home/me/a.py)", f"console: b.py {text} (/home/me/b.py)"] == editor.lines()


def test_sources_are_compared_again_after_a_push() -> None:
    """Files with breakpoints are compared when the job announces a push; each change of the result has a line."""
    compared: list[tuple[str, str]] = []
    editor = attached(on_source=lambda *paths: compared.append(paths))
    path = "/home/me/train.py"
    breakpoints = {"source": {"path": path}, "breakpoints": [{"line": 1}]}
    mapped = {"pathMappings": [{"localRoot": "/home/me", "remoteRoot": "/job"}], "subProcess": False}
    editor.send({"seq": 8, "type": "request", "command": "attach", "arguments": mapped})
    editor.send({"seq": 9, "type": "request", "command": "setBreakpoints", "arguments": breakpoints})
    editor.session.source_compared(path, is_different=True)
    assert 1 == len(compared)
    editor.update(replace(RANK, pushes=1))
    assert (2, compared[0]) == (len(compared), compared[1])
    editor.session.source_compared(path, is_different=False)
    editor.session.source_compared(path, is_different=False)
    editor.take(editor.session.tick(0))
    different, equal = editor.lines()
    assert different.startswith("important: train.py differs from the job's file on node")
    assert f"console: after a push, train.py matches the code that the job on node is executing ({path})" == equal


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
    line = "detached; the job continues (to let an editor terminate the job, start relay-client with --allow-terminate)"
    assert [f"console: {line}"] == editor.lines()


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
    editor = Editor(replace(RANK, holder="held by bob@laptop (since 12:03)"))
    editor.session.has_stream = True
    editor.send(INITIALIZE)
    editor.answer(response(1, "initialize"))
    editor.send(ATTACH)
    editor.answer(response(2, "attach", success=False, message="Server[pid=9677] is already being debugged."))
    assert "rank 0 on node is held by bob@laptop (since 12:03)" == editor.received[-1]["message"]


def test_what_a_job_was_not_allowed_to_do_is_shown() -> None:
    """The sentence of the guard is shown as a notification."""
    editor = attached()
    editor.session.show_refusal("child process 7 is not followed")
    editor.take(editor.stack.tick(0))
    assert ["important: child process 7 is not followed"] == editor.lines()


def test_formats_in_logpoints() -> None:
    """The debugger receives a log message that it can evaluate; the response reaches the editor as usual."""
    editor = attached()
    found = {"source": {"path": "/job/train.py"}, "breakpoints": [{"line": 3, "logMessage": "loss {loss:.5f}"}]}
    editor.send({"seq": 3, "type": "request", "command": "setBreakpoints", "arguments": found})
    (received,) = editor.debugger
    assert [{"line": 3, "logMessage": "loss {format((loss), '.5f')}"}] == received["arguments"]["breakpoints"]
    assert (3, found["source"]) == (received["seq"], received["arguments"]["source"])


def test_commands_that_no_debugger_can_evaluate() -> None:
    """Whatever begins with `@` is answered by relay-client, not by the debugger, which would show a traceback."""
    asked: list[str] = []
    editor = attached(on_question=lambda _request, command: asked.append(command.name))
    for number, text in enumerate(("@ranks", "@help", "@nonsense x", "@stats x", "x"), start=3):
        arguments = {"expression": text, "context": "repl"}
        editor.send({"seq": number, "type": "request", "command": "evaluate", "arguments": arguments})
    assert ["ranks", "help", "nonsense"] == asked
    expressions = [message["arguments"]["expression"] for message in editor.debugger]
    assert ["__import__('relay_agent').stats(x)", "x"] == expressions

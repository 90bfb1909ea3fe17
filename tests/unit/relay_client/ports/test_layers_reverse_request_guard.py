"""Facts about requests of a debugged process to the editor, which may be hostile."""

import pytest

from relay_client.ports.layers import RequestGuard
from relay_core.dap.framing import MAX_BODY, Message, MessageDecoder, encode, encode_body
from relay_core.layers.layer import Abort, EndLocal, Output, ToLocal, ToPeer
from tests.support.machine.streams import split
from tests.support.sessions.layers import Alone

PORT = 5678
ATTACH = {"name": "rank 0", "type": "debugpy", "connect": {"host": "localhost", "port": PORT}, "justMyCode": True}
CHILD = {**ATTACH, "name": "Subprocess 7", "subProcessId": 7}


class Connection:
    """An editor that has attached through the guard; the test takes the part of the debugged process."""

    def __init__(
        self,
        attach: dict[str, object] | None = None,
        port: int | None = PORT,
        sent: dict[str, object] | None = None,
    ) -> None:
        self.logged: list[str] = []
        self.guard = Alone(RequestGuard(port, self.logged.append, lambda: sent))
        request = {"seq": 1, "type": "request", "command": "attach", "arguments": attach or ATTACH}
        assert [ToPeer(encode(request))] == self.guard.receive_local(encode(request), 0)

    def receive(self, *messages: Message) -> tuple[list[Message], list[Message]]:
        """Receive messages of the debugged process; return responses to it, and what the editor receives."""
        outputs = self.guard.receive_peer(b"".join(map(encode, messages)), 0)
        to_peer, to_editor = split(outputs)
        return MessageDecoder().receive_data(to_peer), MessageDecoder().receive_data(to_editor)


def request(command: str, **arguments: object) -> Message:
    return {"seq": 9, "type": "request", "command": command, "arguments": arguments}


def start_debugging(configuration: object, kind: str = "attach") -> Message:
    return request("startDebugging", request=kind, configuration=configuration)


def attach_event(configuration: object, event: str = "debugpyAttach") -> Message:
    return {"seq": 9, "type": "event", "event": event, "body": configuration}


def named(message: Message) -> Message:
    """Return the message that offers the child process 7, with the name that relay-client gives it."""
    if message["type"] == "event":
        return {**message, "body": {**message["body"], "name": "rank 0: child 7"}}
    arguments = message["arguments"]
    configuration = {**arguments["configuration"], "name": "rank 0: child 7"}
    return {**message, "arguments": {**arguments, "configuration": configuration}}


@pytest.mark.parametrize("command", ["runInTerminal", "somethingNew"])
def test_request_to_run_a_command(command):
    """The editor does not receive it; the process gets a failure, and the log one line however often it asks."""
    connection = Connection()
    (failure,), to_editor = connection.receive(request(command, args=["touch", "/tmp/owned"]))
    assert [] == to_editor
    assert (9, False, command) == (failure["request_seq"], failure["success"], failure["command"])
    connection.receive(request(command))
    assert [
        f"refused request '{command}' from the debugged process: it would start a program on this machine"
    ] == connection.logged


@pytest.mark.parametrize(
    "message", [start_debugging(CHILD), attach_event({**CHILD, "request": "attach"})], ids=["request", "event"]
)
def test_child_process(message):
    """The editor receives its own `attach` with the child's id, as from debugpy, with a name made by relay-client."""
    connection = Connection()
    assert ([], [named(message)]) == connection.receive(message)
    assert [] == connection.logged


@pytest.mark.parametrize("make", [start_debugging, attach_event])
def test_text_of_the_process(make):
    """Nothing in a child's configuration is from the debugged process: not its name, not a field of the message."""
    connection = Connection()
    hostile = {**CHILD, "request": "attach", "name": "${command:workbench.action.terminal.runSelectedText}"}
    (received,) = connection.receive({**make(hostile), "extra": "${env:HOME}"})[1]
    assert named(make({**CHILD, "request": "attach"})) == received


def test_what_was_added_to_attach():
    """A child's configuration has what the editor has sent, without what relay-client has added for the debugger."""
    added = {"subProcess": True, "pathMappings": [{"localRoot": "/src", "remoteRoot": "${env:HOME}"}]}
    connection = Connection({**ATTACH, **added}, sent=ATTACH)
    (received,) = connection.receive(start_debugging({**CHILD, **added}))[1]
    assert named(start_debugging(CHILD)) == received


@pytest.mark.parametrize("own", [{"env": {"A": ["${env:HOME}"]}}, {"rules": [{"${command:x}": 1}]}])
def test_variable_in_the_editors_own_configuration(own):
    """A child is not offered if the editor would replace a variable again in what it has sent itself."""
    connection = Connection({**ATTACH, **own})
    assert [] == connection.receive(start_debugging({**CHILD, **own}))[1]
    (sentence,) = connection.logged
    assert sentence.startswith("child process 7 is not being debugged, because ")
    assert "'${'" in sentence


@pytest.mark.parametrize("pid", [True, 0, -1, 2**32, 7.0, "7", None])
def test_invalid_process_id(pid):
    """The number of a child process is a number, and short."""
    assert [] == Connection().receive(start_debugging({**CHILD, "subProcessId": pid}))[1]


@pytest.mark.parametrize(
    "configuration",
    [
        {**CHILD, "preLaunchTask": "build"},
        {**CHILD, "debugAdapterPath": "/tmp/evil"},
        {**CHILD, "type": "node"},
        {**CHILD, "connect": {"host": "localhost", "port": 22}},
        {**CHILD, "connect": {"host": "evil.example", "port": PORT}},
        {**CHILD, "connect": {"host": "localhost", "port": PORT, "x": 1}},
        {**CHILD, "listen": {"port": 1}},
        {**CHILD, "program": "/bin/sh"},
        {key: value for key, value in CHILD.items() if key != "subProcessId"},
        {key: value for key, value in CHILD.items() if key != "connect"},
        {**CHILD, "justMyCode": False},
        None,
    ],
)
@pytest.mark.parametrize("by_event", [False, True])
def test_any_other_configuration(configuration, by_event):
    """A configuration that is more than the editor's own `attach` does not reach the editor."""
    connection = Connection()
    if by_event:
        body = {**configuration, "request": "attach"} if configuration else None
        assert ([], []) == connection.receive(attach_event(body))
    else:
        (failure,), to_editor = connection.receive(start_debugging(configuration))
        assert (False, []) == (failure["success"], to_editor)
    assert 1 == len(connection.logged)


def test_a_child_that_is_not_followed_is_explained():
    """The sentence names the child and what to change; a second one would not say more."""
    connection = Connection()
    for number in (7, 8):
        connection.receive(attach_event({**CHILD, "subProcessId": number, "type": "node", "request": "attach"}))
    (sentence,) = connection.logged
    assert sentence.startswith("child process 7 is not being debugged, because its settings differ")


@pytest.mark.parametrize(
    "message",
    [
        start_debugging(CHILD, "launch"),
        attach_event({**CHILD, "request": "launch"}),
        attach_event(CHILD),
        attach_event({"processId": 1, "program": "/bin/sh"}, "ptvsd_attach"),
    ],
)
def test_launch(message):
    """A request to launch a program never reaches the editor."""
    assert [] == Connection().receive(message)[1]


def test_task_of_the_editors_own_configuration():
    """A task is not run again for a child, although the editor's own configuration has it."""
    connection = Connection({**ATTACH, "preLaunchTask": "build"})
    assert [] == connection.receive(start_debugging({**CHILD, "preLaunchTask": "build"}))[1]


def test_editor_that_attached_with_host_and_port():
    """The older form of a configuration names the same port."""
    own = {"name": "rank 0", "type": "debugpy", "host": "localhost", "port": PORT}
    child = {"name": "Subprocess 7", "type": "debugpy", "subProcessId": 7}
    message = start_debugging({**child, "connect": {"host": "localhost", "port": PORT}})
    assert ([], [named(message)]) == Connection(own).receive(message)


@pytest.mark.parametrize("make", [start_debugging, attach_event])
def test_editor_that_attached_without_a_port(make):
    """It gets the local port: debugpy's own, on the node, is another program's on this machine."""
    own = {"name": "rank 0", "type": "debugpy"}
    child = {**own, "request": "attach", "subProcessId": 7}
    sent = make({**child, "connect": {"host": "127.0.0.1", "port": 40001}})
    expected = make({**child, "connect": {"host": "127.0.0.1", "port": PORT}})
    assert ([], [named(expected)]) == Connection(own).receive(sent)


def test_editor_that_listens():
    """A child cannot connect to an editor that listens by way of a port of the node."""
    own = {"name": "rank 0", "type": "debugpy"}
    child = {**own, "subProcessId": 7, "connect": {"host": "127.0.0.1", "port": 40001}}
    assert [] == Connection(own, port=None).receive(start_debugging(child))[1]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        b"X: y\r\nContent-Length: 50\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 50\r\n\r\n{}",
        b"content-length: 2\r\n\r\n{}",
        b"Content-Length: 0\r\n\r\n",
        b"Content-Length: %d\r\n\r\n{" % (MAX_BODY + 1),
    ],
)
def test_bytes_that_an_editor_may_read_otherwise(data, early):
    """The connection is aborted, whether the editor has already sent something or not."""
    guard = Alone(RequestGuard(PORT, lambda _text: None)) if early else Connection().guard
    outputs: list[Output] = []
    for byte in data:
        outputs += guard.receive_peer(bytes([byte]), 0)
        if outputs and isinstance(outputs[-1], Abort):
            break
    assert isinstance(outputs[-1], Abort)
    assert b"\r\n\r\n" not in split(outputs)[1]


def test_bytes_after_the_framing_was_lost():
    """A message that takes the first letter of the next header ends the connection: no part of that message passes."""
    body = b'{"type":"response","request_seq":1,"success":true,"command":"attach"}'
    data = b"Content-Length: %d\r\n\r\n%b%b" % (len(body) + 1, body, encode(request("runInTerminal")))
    guard = Connection().guard
    outputs = [output for byte in data for output in guard.receive_peer(bytes([byte]), 0)]
    first = next(at for at, output in enumerate(outputs) if isinstance(output, Abort))
    assert b"C" == split(outputs[:first])[1][-1:]


def test_escaped_letters():
    """A request is recognized in every spelling of JSON."""
    guard = Connection().guard
    body = rb'{"seq": 9, "t\u0079pe": "\u0072equest", "command": "runInTe\u0072minal", "arguments": {}}'
    to_peer, to_editor = split(guard.receive_peer(encode_body(body), 0))
    assert (b"", True) == (to_editor, b'"success":false' in to_peer)


def test_message_that_is_not_valid():
    """A message that looks like a request but cannot be read is dropped: an editor may be more lenient."""
    guard = Connection().guard
    assert [] == guard.receive_peer(encode_body(b'{"type": "request", "seq": 9, "command": "a\xff"}'), 0)


def test_request_before_the_editor_has_sent_anything():
    """A request is refused from the first byte on."""
    guard = Alone(RequestGuard(PORT, lambda _text: None))
    to_peer, to_editor = split(guard.receive_peer(encode(request("runInTerminal")), 0))
    assert (b"", True) == (to_editor, bool(to_peer))


def test_failure_is_not_inserted_into_a_message_of_the_editor():
    """The response follows the message that the editor is just sending."""
    connection = Connection()
    long = encode({"seq": 2, "type": "request", "command": "evaluate", "arguments": {"expression": "x" * 300_000}})
    connection.guard.receive_local(long[:1000], 0)
    assert ([], []) == connection.receive(request("runInTerminal"))
    (rest,) = connection.guard.receive_local(long[1000:], 0)
    assert rest.data.startswith(long[1000:])
    assert b'"success":false' in rest.data[len(long) - 1000 :]


def test_other_messages():
    """Responses and events pass unchanged, even if their texts look like a request."""
    connection = Connection()
    text = 'request" r\u00e9sum\u00e9 debugpyAttach"'
    messages = [
        {"seq": 1, "type": "event", "event": "output", "body": {"category": "stdout", "output": text}},
        {"seq": 2, "type": "response", "request_seq": 1, "command": "attach", "success": True},
    ]
    assert ([], messages) == connection.receive(*messages)


def test_connection_of_another_program():
    """A local program that does not speak DAP is not an editor: its connection passes unchanged."""
    guard = Alone(RequestGuard(PORT, lambda _text: None))
    assert [ToLocal(b"SSH-2.0\r\n")] == guard.receive_peer(b"SSH-2.0\r\n", 0)
    assert [ToPeer(b"GET / HTTP/1.1\r\n")] == guard.receive_local(b"GET / HTTP/1.1\r\n", 0)
    assert guard.is_finished


def test_bytes_held_for_another_program():
    """What was held of the peer because it might have been DAP is passed on once the local program shows otherwise."""
    guard = Alone(RequestGuard(PORT, lambda _text: None))
    assert [] == guard.receive_peer(b"Con", 0)
    assert [ToPeer(b"hello"), ToLocal(b"Con")] == guard.receive_local(b"hello", 0)


def test_end():
    """The end is passed on; part of a message is not, because an editor might read a whole one in it."""
    connection = Connection()
    connection.guard.receive_peer(b"Content-Length: 9\r\n\r\n{", 0)
    assert [EndLocal()] == connection.guard.receive_peer_eof(0)

"""Facts about what an editor receives of events and failed responses: hostile texts in every field that a job fills."""

import json
from typing import Any

import pytest

from relay_client.editor.allowed_messages import EVENTS, allowed_event, allowed_failure, is_success
from relay_client.editor.session import EditorSession
from relay_client.ports.layers import MAX_CHECKED, RequestGuard
from relay_core.dap.framing import MessageDecoder, encode, encode_body
from relay_core.foreign import MAX_FAILURE
from relay_core.layers.layer import ToLocal
from relay_core.layers.stack import LayerStack
from tests.support.data.hostile_texts import HOSTILE_TEXTS, harm_in
from tests.support.sessions.editor_session import INITIALIZE, RANK
from tests.support.sessions.scripted_ranks import Stage, attached

PORT = 5678
MEBIBYTE = 1024 * 1024
ATTACH = {"name": "rank 0", "type": "debugpy", "connect": {"host": "localhost", "port": PORT}}
CHILD = {**ATTACH, "name": "Subprocess 7", "subProcessId": 7}
ALL = pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
FIELDS = (
    *(
        "category",
        "output",
        "title",
        "message",
        "text",
        "description",
        "reason",
        "name",
        "restart",
        "progressId",
        "data",
    ),
    *("group", "source", "module", "breakpoint", "capabilities", "threadId", "url", "showUser", "command", "sockets"),
)
CATEGORIES = ("important", "console", "stdout", "stderr", "telemetry")


def messages_with(text: str) -> list[dict[str, Any]]:
    """Return messages of a hostile debugger with a text in each field, also as a key and in nested objects."""
    bodies: list[dict[str, Any]] = [
        dict.fromkeys(FIELDS, text),
        {name: {text: text, "restart": [text]} for name in FIELDS},
    ]
    bodies += [{**bodies[0], "category": category} for category in CATEGORIES]
    bodies += [{"output": f"relay-client: {text}", "category": "console", text: text}]
    names = (*EVENTS, "custom", "debugpyAttach", "ptvsd_attach", text)
    sent: list[dict[str, Any]] = [{"type": "event", "event": name, "body": body} for name in names for body in bodies]
    for child in children_with(text):
        sent.append(request("startDebugging", {"request": "attach", "configuration": child, text: text}))
        sent.append({"type": "event", "event": "debugpyAttach", "body": {**child, "request": "attach"}, text: text})
    sent += [request(name, {"args": [text], "title": text}) for name in ("runInTerminal", "launchVSCode", text)]
    sent += [failed(message=text, body=body) for body in errors_with(text)]
    return [{"seq": 9, **message} for message in sent]


def children_with(text: str) -> list[dict[str, Any]]:
    changed = [{**CHILD, name: text} for name in (*CHILD, "program", "preLaunchTask", "request")]
    return [CHILD, *changed, {**CHILD, text: text}, {**CHILD, "connect": {"host": text, "port": PORT}}]


def errors_with(text: str) -> list[object]:
    error = {
        "id": 1,
        "format": text,
        "url": text,
        "urlLabel": text,
        "showUser": True,
        "sendTelemetry": True,
        text: text,
    }
    filled = {"id": text, "format": "{a}{b}", "variables": {"a": text, "b": f"[x]{{{text}}}({text})"}}
    return [{"error": error}, {"error": filled}, {"error": text}, {text: text}, text, None]


def request(command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "request", "command": command, "arguments": arguments}


def failed(**fields: object) -> dict[str, Any]:
    return {"type": "response", "request_seq": 1, "command": "evaluate", "success": False, **fields}


class Connection:
    """An editor that has attached to a hostile debugger."""

    def __init__(self, port: int | None = PORT) -> None:
        self.session = EditorSession(RANK, 0, listens=port is None)
        guard = RequestGuard(port, self.session.show_refusal, lambda: self.session.attach.sent)
        self.stack = LayerStack([self.session, guard])
        self.session.has_stream = True
        attach = {"seq": 2, "type": "request", "command": "attach", "arguments": ATTACH}
        for message in (INITIALIZE, attach):
            self.stack.receive_local(encode(message), 0)

    def receive(self, data: bytes) -> list[dict[str, Any]]:
        """Take bytes of the debugger; return what the editor receives."""
        outputs = self.stack.receive_peer(data, 0) + self.stack.tick(0)
        to_editor = b"".join(output.data for output in outputs if isinstance(output, ToLocal))
        return MessageDecoder().receive_data(to_editor)  # type: ignore[return-value]


@ALL
@pytest.mark.parametrize("port", [PORT, None], ids=["one rank", "listening editor"])
def test_hostile_texts(text: str, port: int | None) -> None:
    """Nothing that an editor would resolve, link or run comes out, whatever field of a message contains it."""
    connection = Connection(port)
    received = [found for message in messages_with(text) for found in connection.receive(encode(message))]  # type: ignore[arg-type]
    assert [] == [harm for message in received for harm in harm_in(message)]
    names = {message.get("event", message.get("command")) for message in received}
    assert {"output", "progressStart", "evaluate"} <= names
    assert (port is not None) == ("startDebugging" in names)


@ALL
def test_hostile_texts_in_the_session_of_all_ranks(text: str) -> None:
    """The session of all ranks passes on no harm of a rank either, and answers with none."""
    connection = Connection()
    stage, _ = attached(0)
    for message in messages_with(text):
        for found in connection.receive(encode(message)):  # type: ignore[arg-type]
            stage.session.receive_rank(1, found, stage.now)  # type: ignore[arg-type]
        stage.flush()
    fail_each_request(stage, connection, text)
    stage.wait(10)
    assert [] == [harm for message in stage.received for harm in harm_in(message)]


def fail_each_request(stage: Stage, connection: Connection, text: str) -> None:
    """Let the rank refuse what the editor asks for, with a hostile reason."""
    for command in ("evaluate", "next", "setVariable"):
        stage.send(command, expression="x", context="repl", threadId=1, frameId=0)
        while stage.ranks[1].received:
            number = stage.ranks[1].received.popleft()["seq"]
            refused = {"seq": 9, **failed(message=text, body=errors_with(text)[0]), "request_seq": number}
            for found in connection.receive(encode(refused)):  # type: ignore[arg-type]
                stage.session.receive_rank(1, found, stage.now)  # type: ignore[arg-type]
            stage.flush()


def test_ordinary_events() -> None:
    """What debugpy sends passes with all of its fields."""
    source = {"path": "/job/train.py", "sourceReference": 0}
    events: list[dict[str, Any]] = [
        {"event": "initialized"},
        {"event": "output", "body": {"category": "telemetry", "output": "debugpy", "data": {"packageVersion": "1.8"}}},
        {
            "event": "output",
            "body": {"category": "stdout", "output": "\x1b[31mred\x1b[0m\n", "source": source, "line": 3},
        },
        {"event": "stopped", "body": {"reason": "step", "threadId": 1, "allThreadsStopped": True, "text": "x"}},
        {"event": "module", "body": {"reason": "new", "module": {"id": 1, "name": "a", "path": "/a.py"}}},
        {"event": "debugpySockets", "body": {"sockets": [{"host": "127.0.0.1", "port": 1, "internal": True}]}},
        {"event": "exited", "body": {"exitCode": 0}},
        {"event": "terminated", "body": {"restart": True}},
    ]
    for event in events:
        sent: Any = {"seq": 3, "type": "event", **event}
        assert sent == allowed_event(sent)


def test_unknown_event() -> None:
    """An event that is not in the table does not reach the editor."""
    assert allowed_event({"seq": 1, "type": "event", "event": "custom", "body": {}}) is None


@pytest.mark.parametrize("category", [{"category": "important"}, {"category": "console"}, {}, {"category": [1]}])
def test_output_in_the_category_of_relay_client(category: dict[str, object]) -> None:
    """The job's output has none of relay-client's own categories, whatever its text: it is never a notification."""
    for text in ("x", "relay-client: x", "x\nrelay-client: x", "\x1b[0mrelay-client: x", "relay-"):
        body = {**category, "output": text}
        found = allowed_event({"seq": 1, "type": "event", "event": "output", "body": body})
        assert found is not None
        assert "stdout" == found["body"]["category"]


def test_reason_of_a_failure() -> None:
    """The reason keeps its lines; a template is filled in, and has no variables left for the editor."""
    error = {"id": 4, "format": "cannot {verb} {x}", "variables": {"verb": "read"}}
    response: Any = {"seq": 3, **failed(message="Traceback:\n  KeyError", body={"error": error})}
    expected = {"error": {"id": 4, "format": "cannot read (x)"}}
    assert {**response, "body": expected} == allowed_failure(response)


def test_format_of_braces() -> None:
    """A format of many braces, or with one long variable many times, takes no more time and memory than its length."""
    for text in ("{" * MEBIBYTE, "{a}" * (MEBIBYTE // 3)):
        error = {"format": text, "variables": {"a": "x" * MEBIBYTE}}
        response: Any = {"seq": 3, **failed(body={"error": error})}
        assert len(allowed_failure(response)["body"]["error"]["format"]) <= MAX_FAILURE


BODY = {"variables": [{"name": "x", "value": "1", "type": "int"}]}
SUCCESS = {"seq": 1, "type": "response", "request_seq": 2, "success": True, "command": "variables", "body": BODY}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_success_is_not_parsed(separators: tuple[str, str]) -> None:
    """A successful response is recognized by its bytes, in the orders in which the adapter and pydevd write it."""
    of_pydevd = {name: SUCCESS[name] for name in ("type", "request_seq", "success", "command", "body", "seq")}
    for message in (SUCCESS, of_pydevd):
        assert is_success(encode_body(json.dumps(message, separators=separators).encode()))


@pytest.mark.parametrize(
    "changed",
    [
        SUCCESS | {"success": False},
        SUCCESS | {"type": "event", "event": "output"},
        SUCCESS | {"type": "request"},
        {**SUCCESS, "body": {"success": True}},
        {"body": {"success": True}, **SUCCESS},
        {name: value for name, value in SUCCESS.items() if name != "success"} | {"body": {"success": True}},
        SUCCESS | {"body": {"x": "\u00e9"}},
    ],
)
def test_other_messages_are_parsed(changed: dict[str, Any]) -> None:
    """A message that a reader could take for anything but a successful response is not recognized as one."""
    assert not is_success(encode_body(json.dumps(changed).encode()))


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq":1,"type":"response","request_seq":1,"success":true,"command":"x","success":false,"message":"[a](command:b)"}',
        b'{"seq":1,"type":"response","request_seq":1,"success":0,"command":"x","message":"[a](command:b)"}',
        b'{"seq":1,"type":"response","request_seq":1,"command":"x","message":"[a](command:b)"}',
        b'{"seq":1,"type":"response","request_seq":1,"success":true,"command":"x","s\\u0075ccess":null,"message":"[a](command:b)"}',
        b'{"seq":1,"type":"response","request_seq":1,"success":true,"type":"event","event":"output","body":{"output":""}}',
        b'{"seq":1,"type":"response","success":true,"type":"event","event":"progressStart","body":{"title":"[a](command:b)"}}',
        b'{"seq":1,"type":"response","request_seq":1,"success":true,"command":"x","ty\\u0070e":"\\u0065vent","event":"custom"}',
    ],
)
def test_disguised_messages(body: bytes) -> None:
    """The last occurrence of a field counts, in any spelling, as it does for an editor."""
    assert [] == [harm for message in Connection().receive(encode_body(body)) for harm in harm_in(message)]


RUN = b'"type":"request","command":"runInTerminal","arguments":{"args":["touch","owned"],"cwd":""}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq":1,%b,"type":"response","request_seq":1,"success":true,"command":"x"}' % RUN,
        b'{"seq":1,"type":"response","request_seq":1,"success":true,"command":"x","body":{},%b,"type":"response"}'
        % RUN,
        b'{"seq":1,"type":"event","event":"debugpyAttach","body":{"request":"launch"},"event":"initialized","body":{}}',
        b'{"seq":1,"type":"event","event":"output","body":{"category":"important","category":"stdout","output":"x"}}',
    ],
)
def test_messages_in_which_the_first_occurrence_counts(body: bytes) -> None:
    """An editor in which the first occurrence of a field counts, such as Emacs, finds nothing else in a message."""
    outputs = Connection().stack.receive_peer(encode_body(body), 0)
    [piece] = [output for output in outputs if isinstance(output, ToLocal)]
    read = json.loads(piece.whole_body, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert json.loads(piece.whole_body) == read
    assert [] == harm_in(read)


@pytest.mark.parametrize("key", [b'"path"', b'"path" ', b'"p\\u0061th"'])
def test_uri_in_place_of_a_path(key: bytes) -> None:
    """An editor receives no path of a source file that leads to another machine, but all others.

    That is a URI, a name of TRAMP or a UNC path, in a response or an event.
    """
    uris = ["vscode-vfs://github/a/b", "git:/x?%7B%7D", "command:x", "https://host.invalid/x.py"]
    names = ["/ssh:host.invalid:/x.py", "/sudo:root@localhost:/x.py", "//host.invalid/x.py", r"\\host.invalid\x\x.py"]
    paths = ["/job/train.py", r"C:\job\train.py", "c:/train.py", "<string>", "train.py", "/a/b:c.py", "", "/"]
    for path in [*uris, *names, *(name.replace("/", r"\/") for name in names), *paths]:
        source = b'{"name":"x",%b: %b}' % (key, json.dumps(path).replace(r"\\/", r"\/").encode())
        for body in (
            b'{"seq":1,"type":"response","request_seq":1,"success":true,"command":"x","body":{"frames":[{"source":%b}]}}',
            b'{"seq":1,"type":"event","event":"output","body":{"category":"stdout","output":"x","source":%b}}',
        ):
            [found] = Connection().receive(encode_body(body % source))
            assert (path in paths) == ("path" in str(found))


def test_message_that_takes_too_long_to_check() -> None:
    """A long response passes if its bytes show that it is harmless; otherwise, its request fails, with the reason."""
    connection = Connection()
    head = b'{"seq":1,"type":"response","request_seq":7,"success":true,"command":"evaluate","body":{"result":"'
    plain = encode_body(head + b"x" * MAX_CHECKED + b'"}}')
    assert plain == b"".join(each.data for each in connection.stack.receive_peer(plain, 0) if isinstance(each, ToLocal))
    [failed] = connection.receive(encode_body(head + rb"\u0041" + b"x" * MAX_CHECKED + b'"}}'))
    assert (7, False, "evaluate") == (failed["request_seq"], failed["success"], failed["command"])
    assert failed["message"].startswith("it is longer than 4 MiB")
    event = encode_body(b'{"seq":1,"type":"event","event":"output","body":{"output":"%b"}}' % (b"x" * MAX_CHECKED))
    [line] = connection.receive(event)
    assert "relay-client: a message of the debugger is not passed to the editor: it is longer" in str(line)
    assert [] == connection.receive(event)


def test_deeply_nested_event() -> None:
    """An event that can be read but not written is dropped; the connection stays."""
    connection = Connection()
    for depth in range(100, 5000, 50):
        nested = b"[" * depth + b"]" * depth
        body = b'{"seq":1,"type":"event","event":"invalidated","body":{"areas":%b}}' % nested
        connection.receive(encode_body(body))
    assert 1 == len(connection.receive(encode({"seq": 1, "type": "event", "event": "initialized"})))

"""Facts about the requests of an attaching editor that are answered before the debugger does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.editor.attach_answers import CAPABILITIES, DEBUGPY_CAPABILITIES, AttachAnswers
from relay_core.dap.framing import Message, MessageDecoder, encode
from relay_core.layers.layer import EndLocal, EndPeer, Layer, ResetLocal, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED
from relay_core.layers.stack import LayerStack
from tests.support.machine.streams import split
from tests.support.sessions.layers import Alone

ORDER = ["initialize", "attach", "setBreakpoints", "setFunctionBreakpoints", "setExceptionBreakpoints"]


class Editor:
    """An editor in front of the layer; the test takes the part of the debugger."""

    def __init__(self, *, is_debugpy: bool = True) -> None:
        self.answers = Alone(AttachAnswers())
        self.answers.layer.is_debugpy = is_debugpy
        self.seq = 0
        self.numbers: dict[str, int] = {}

    def send(self, command: str, **arguments: object) -> list[Message]:
        """Send a request, which the debugger must receive unchanged; return what the editor receives at once."""
        self.seq += 1
        self.numbers[command] = self.seq
        data = encode({"seq": self.seq, "type": "request", "command": command, "arguments": arguments})
        to_debugger, to_editor = split(self.answers.receive_local(data, 0))
        assert data == to_debugger
        return MessageDecoder().receive_data(to_editor)

    def receive(self, *messages: Message) -> list[Message]:
        """Receive messages of the debugger; return those that the editor receives."""
        to_editor = split(self.answers.receive_peer(b"".join(map(encode, messages)), 0))[1]
        return MessageDecoder().receive_data(to_editor)

    def answered(self, command: str, body: object = None, *, success: bool = True, seq: int = 1) -> list[Message]:
        """Receive the debugger's response to a request; return what the editor receives."""
        return self.receive(response(command, self.numbers[command], body, success=success, seq=seq))


def response(command: str, number: int, body: object = None, *, success: bool = True, seq: int = 1) -> Message:
    result = {"seq": seq, "type": "response", "request_seq": number, "success": success, "command": command}
    return result | ({"body": body} if body is not None else {}) | ({} if success else {"message": "it cannot"})


def initialized(seq: int = 1) -> Message:
    return {"seq": seq, "type": "event", "event": "initialized", "body": {}}


def names(messages: list[Message]) -> list[str]:
    return [message.get("event") or message["command"] for message in messages]


@pytest.fixture
def editor() -> Editor:
    """An editor that has attached, as far as it knows, and set its breakpoints."""
    editor = Editor()
    received = [names(editor.send(command)) for command in ORDER]
    assert [["initialize"], ["initialized"], [], ["setFunctionBreakpoints"], ["setExceptionBreakpoints"]] == received
    return editor


def test_responses_equal_those_of_debugpy():
    """They have the bodies that debugpy sends."""
    editor = Editor()
    (first,) = editor.send("initialize")
    assert response("initialize", 1, CAPABILITIES) == first
    editor.send("attach")
    assert [response("setFunctionBreakpoints", 3, {"breakpoints": []})] == editor.send("setFunctionBreakpoints")
    assert [response("setExceptionBreakpoints", 4)] == editor.send("setExceptionBreakpoints", filters=["uncaught"])
    assert [response("configurationDone", 5)] == editor.send("configurationDone")


def test_debugger_that_answers_as_expected(editor):
    """The editor receives nothing twice, and all that it has not received; then the layer is finished."""
    assert [] == editor.answered("initialize", DEBUGPY_CAPABILITIES)
    assert ["output"] == names(editor.receive({"seq": 2, "type": "event", "event": "output"}, initialized()))
    assert ["setBreakpoints"] == names(editor.answered("setBreakpoints", {"breakpoints": []}))
    assert [] == editor.answered("setFunctionBreakpoints", {"breakpoints": []})
    editor.send("configurationDone")
    assert [] == editor.answered("setExceptionBreakpoints")
    assert not editor.answers.is_finished
    assert [] == editor.answered("configurationDone")
    assert editor.answers.is_finished
    assert ["attach"] == names(editor.answered("attach"))


def test_parts_of_messages_are_passed_on_at_the_end(editor):
    """When the layer is finished, nothing that it has received stays behind."""
    for command in ("initialize", "setFunctionBreakpoints", "setExceptionBreakpoints"):
        editor.answered(command, DEBUGPY_CAPABILITIES if command == "initialize" else None)
    editor.send("configurationDone")
    last = encode(initialized()) + encode(response("configurationDone", editor.seq)) + b"Content"
    assert [] == editor.answers.receive_local(b"Cont", 0)
    assert [ToPeer(b"Cont"), ToLocal(b"Content")] == editor.answers.receive_peer(last, 0)
    assert editor.answers.is_finished


def test_function_breakpoints():
    """Their response has ids, so debugpy sends it."""
    editor = Editor()
    editor.send("initialize")
    editor.send("attach")
    assert [] == editor.send("setFunctionBreakpoints", breakpoints=[{"name": "work"}])
    assert ["setFunctionBreakpoints"] == names(editor.answered("setFunctionBreakpoints"))


def test_other_debugger():
    """Without knowing the debugger, nothing is answered, and the layer is finished after the first response."""
    editor = Editor(is_debugpy=False)
    assert [] == editor.send("initialize")
    assert [] == editor.send("attach")
    assert ["initialize"] == names(editor.answered("initialize", {}))
    assert editor.answers.is_finished


def test_editor_that_was_there_before_the_job():
    """A request that has waited for a stream is answered at its start, once."""
    editor = Editor(is_debugpy=False)
    editor.send("initialize")
    assert [] == editor.answers.start(0)
    editor.answers.layer.is_debugpy = True
    (answer,) = editor.answers.start(0)
    assert [response("initialize", 1, CAPABILITIES)] == MessageDecoder().receive_data(answer.data)
    assert [] == editor.answers.start(0)
    assert ["initialized"] == names(editor.send("attach"))


def test_other_capabilities(editor):
    """The editor receives them in an event, and those that are missing as false."""
    changed = {**DEBUGPY_CAPABILITIES, "supportsRestartRequest": True}
    del changed["supportsLogPoints"]
    (event,) = editor.answered("initialize", changed)
    assert "capabilities" == event["event"]
    assert {**changed, "supportsLogPoints": False} == event["body"]["capabilities"]


@pytest.mark.parametrize("body", [None, True, [1]])
def test_malformed_capabilities(editor, body):
    """They count as none."""
    (event,) = editor.answered("initialize", body)
    assert dict.fromkeys(DEBUGPY_CAPABILITIES, False) == event["body"]["capabilities"]


def test_failed_initialize(editor):
    """The failure becomes the response to `attach`, and what fails because of it is not reported again."""
    expected = response("attach", editor.numbers["attach"], success=False)
    assert [expected] == editor.answered("initialize", success=False)
    assert [] == editor.answered("setExceptionBreakpoints", success=False)


def test_failed_initialize_before_attach():
    """The failure is the response to the `attach` that follows."""
    editor = Editor()
    editor.send("initialize")
    assert [] == editor.answered("initialize", success=False)
    assert [response("attach", 2, success=False)] == editor.send("attach")


def test_messages_of_the_next_layer(editor):
    """A failure that this program sends itself, in place of the debugger, is changed in the same way."""

    class Failing(Layer):
        def start(self, now):
            return [ToLocal.of(response("initialize", 1, success=False))]

    expected = response("attach", editor.numbers["attach"], success=False)
    assert [ToLocal.of(expected)] == LayerStack([editor.answers.layer, Failing()]).start(0)


def test_failed_attach(editor):
    """The editor receives the failure, and not what follows from it."""
    editor.answered("initialize", DEBUGPY_CAPABILITIES)
    assert ["attach"] == names(editor.answered("attach", success=False))
    assert [] == editor.answered("setFunctionBreakpoints", success=False)
    assert ["initialized"] == names(editor.receive(initialized())), "it is not expected any more"


def test_other_failure(editor):
    """What fails although it was expected to succeed is shown."""
    (event,) = editor.answered("setExceptionBreakpoints", success=False)
    text = "relay-client: the debugger refused 'setExceptionBreakpoints': it cannot\n"
    assert ("output", {"category": "important", "output": text}) == (event["event"], event["body"])


def test_numbers_do_not_go_backwards():
    """An early response has the number of the last message that the editor has received."""
    editor = Editor()
    received = editor.send("initialize") + editor.send("attach")
    received += editor.receive({"seq": 7, "type": "event", "event": "output"})
    received += editor.send("setExceptionBreakpoints")
    assert [1, 1, 7, 7] == [message["seq"] for message in received]


def test_nothing_is_inserted_into_a_long_message():
    """While a message of the debugger is passed on in parts, responses wait for its end."""
    editor = Editor()
    editor.send("initialize")
    editor.send("attach")
    long = encode({"seq": 2, "type": "event", "event": "output", "body": {"output": "x" * MAX_PARSED}})
    assert [ToLocal(long[:1000])] == editor.answers.receive_peer(long[:1000], 0)
    assert [] == editor.send("setExceptionBreakpoints")
    (rest,) = editor.answers.receive_peer(long[1000:], 0)
    assert rest.data.startswith(long[1000:])
    assert ["setExceptionBreakpoints"] == names(MessageDecoder().receive_data(rest.data[len(long) - 1000 :]))


def test_connection_that_is_not_an_editors():
    """The layer is finished at the first bytes."""
    answers = Alone(AttachAnswers())
    assert [ToPeer(b"GET / HTTP/1.1")] == answers.receive_local(b"GET / HTTP/1.1", 0)
    assert answers.is_finished


def test_ends():
    """Parts of messages are passed on before an end or a loss."""
    answers = Alone(AttachAnswers())
    assert ([EndPeer()], [EndLocal()]) == (answers.receive_local_eof(0), answers.receive_peer_eof(0))
    answers.receive_local(b"Content", 0)
    answers.receive_peer(b"Content", 0)
    assert [ToPeer(b"Content"), EndPeer()] == answers.receive_local_eof(0)
    assert [ToLocal(b"Content"), EndLocal()] == answers.receive_peer_eof(0)
    answers.receive_peer(b"Content", 0)
    assert [ToLocal(b"Content"), ResetLocal()] == answers.receive_peer_lost(0)


commands = st.sampled_from([*ORDER, "configurationDone", "threads"])
values = st.none() | st.booleans() | st.integers(0, 6) | st.just({}) | st.just({"breakpoints": [1]})
fields = st.dictionaries(st.sampled_from(["seq", "request_seq", "success", "body", "arguments", "message"]), values)
messages = st.builds(
    lambda kind, name, rest: {"type": kind, "command": name, "event": name, **rest},
    st.sampled_from(["request", "response", "event"]),
    commands | st.just("initialized"),
    fields,
)


@given(st.lists(st.tuples(st.booleans(), messages), max_size=12))
def test_any_messages(sent):
    """No message, however malformed, raises an exception, and the debugger receives every request unchanged."""
    answers = Alone(AttachAnswers())
    answers.layer.is_debugpy = True
    for from_editor, message in sent:
        data = encode(message)
        if from_editor:
            assert data == split(answers.receive_local(data, 0))[0]
        else:
            MessageDecoder().receive_data(split(answers.receive_peer(data, 0))[1])

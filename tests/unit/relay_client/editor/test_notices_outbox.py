"""Facts about messages that wait to be sent to an editor."""

from relay_client.editor.notices import Outbox
from relay_core.dap.framing import MessageDecoder
from tests.support.machine.streams import split

REQUEST = {"seq": 7, "type": "request", "command": "disconnect"}


def test_messages_are_taken_in_order_and_once() -> None:
    """Lines, events and responses come out as they were added."""
    outbox = Outbox()
    outbox.show("waiting")
    outbox.show_all([("one", "console"), ("two", "important")])
    outbox.event("exited", {"exitCode": 3})
    outbox.answer(REQUEST)
    outbox.fail(REQUEST, "held")
    assert outbox
    messages = MessageDecoder().receive_data(split(outbox.take())[1])
    assert ["output", "output", "output", "exited"] == [message["event"] for message in messages[:4]]
    assert [True, False] == [message["success"] for message in messages[4:]]
    assert ([], False) == (outbox.take(), bool(outbox))


def test_numbers_follow_the_debugger() -> None:
    """A message has the highest number that the debugger has used so far."""
    outbox = Outbox()
    for seq in (12, 7, 0):
        outbox.note(seq)
    outbox.show("waiting")
    (message,) = MessageDecoder().receive_data(split(outbox.take())[1])
    assert 12 == message["seq"]

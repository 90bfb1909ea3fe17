"""Facts about the messages that relay-client sends to editors."""

import json
from typing import Any

import pytest

from relay_client.editor.messages import CONSOLE, IMPORTANT, make_failure
from relay_client.editor.notices import Outbox
from relay_core.dap.framing import MessageDecoder
from relay_core.layers.layer import ToLocal
from tests.support.data.hostile_texts import HOSTILE_TEXTS, harm_in

REQUEST = {"seq": 7, "type": "request", "command": "initialize"}


def only_message(outbox: Outbox) -> Any:
    """Return the message that waits."""
    (output,) = outbox.take()
    assert isinstance(output, ToLocal)
    return json.loads(output.data.partition(b"\r\n\r\n")[2])


def test_output_names_the_program() -> None:
    """A line of relay-client cannot be taken for one of the job."""
    outbox = Outbox()
    outbox.note(3)
    outbox.show("waiting")
    event = only_message(outbox)
    assert ("output", 3) == (event["event"], event["seq"])
    assert {"category": "console", "output": "relay-client: waiting\n"} == event["body"]


def test_a_failure_is_shown_to_the_user() -> None:
    """The reason is in both fields that editors read, and never taken for a template with variables."""
    failure = make_failure(REQUEST, "no {job}")
    assert (False, "no {job}", 7) == (failure["success"], failure["message"], failure["request_seq"])
    assert {"id": 1, "format": "no (job)", "showUser": True} == failure["body"]["error"]


def test_a_success_answers_the_request() -> None:
    """A response has the number and the command of its request."""
    outbox = Outbox()
    outbox.answer(REQUEST)
    success = only_message(outbox)
    assert (True, "initialize", 7) == (success["success"], success["command"], success["request_seq"])


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_foreign_text_in_a_sentence(text: str) -> None:
    """No notification or reason of relay-client contains a link, whatever an exception, a host or a user is called."""
    outbox = Outbox()
    outbox.show_all([(f"the job ended with status 1: {text}", IMPORTANT), (text, CONSOLE)])
    outbox.fail(REQUEST, f"rank 0 is held by {text}")
    data = b"".join(output.data for output in outbox.take() if isinstance(output, ToLocal))
    messages = MessageDecoder().receive_data(data)
    assert [] == [harm for message in messages for harm in harm_in(message)]
    assert 2 == sum(message["body"]["output"].count("\n") for message in messages[:2])

"""Facts about the requests with which an editor ends its session; the whole layer is tested in test_session.py."""

from typing import Any

import pytest

from relay_client.editor.ending import DisconnectGuard, harmless
from relay_client.editor.notices import Outbox
from relay_core.dap.messages import Request
from relay_core.layers.layer import ToLocal, ToPeer

TERMINATE: Request = {"seq": 9, "type": "request", "command": "terminate"}


def guard(*, allow_terminate: bool = False) -> tuple[DisconnectGuard, Outbox]:
    outbox = Outbox()
    return DisconnectGuard(outbox, allow_terminate=allow_terminate), outbox


def test_terminate_becomes_a_disconnect() -> None:
    """The editor has its response at once, so that of the debugger is left out, once."""
    leave, outbox = guard()
    assert not leave.has_begun
    (sent,) = leave.requested(TERMINATE, ToPeer.of(TERMINATE), has_stream=True)
    assert isinstance(sent, ToPeer)
    assert (9, "disconnect") == (sent.seq, sent.name)
    assert ["output", "terminate"] == [each.name for each in outbox.take() if isinstance(each, ToLocal)]
    assert (True, False, True) == (leave.responded(9), leave.responded(9), leave.has_begun)


def test_terminate_that_is_allowed() -> None:
    """It passes as the bytes that came, and the debugger answers it."""
    leave, outbox = guard(allow_terminate=True)
    piece = ToPeer.of(TERMINATE)
    assert [piece] == leave.requested(TERMINATE, piece, has_stream=True)
    assert (False, []) == (leave.responded(9), outbox.take())


def test_without_a_debugger_the_request_is_answered() -> None:
    """At once without a stream, or once the debugger is lost; a response of the debugger is enough."""
    for has_stream, is_answered, expected in ((False, False, 1), (True, False, 1), (True, True, 0)):
        leave, outbox = guard(allow_terminate=True)
        leave.requested(TERMINATE, ToPeer.of(TERMINATE), has_stream=has_stream)
        if is_answered:
            leave.responded(9)
        leave.answer()
        assert expected == len(outbox.take())


def request(command: str, **arguments: Any) -> dict[str, Any]:
    return {"seq": 9, "type": "request", "command": command, "arguments": arguments}


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (request("terminate", restart=False), request("disconnect", terminateDebuggee=False)),
        (
            request("disconnect", restart=True, terminateDebuggee=True),
            request("disconnect", restart=True, terminateDebuggee=False),
        ),
    ],
)
def test_the_job_is_only_detached_from(sent: dict[str, Any], received: dict[str, Any]) -> None:
    """Both ways to end the job become a `disconnect` without `terminateDebuggee`."""
    assert received == harmless(sent)


@pytest.mark.parametrize(
    "sent", [request("disconnect"), request("disconnect", terminateDebuggee=False), request("evaluate", x="terminate")]
)
def test_other_requests_pass(sent: dict[str, Any]) -> None:
    """They are the same objects."""
    assert sent is harmless(sent)

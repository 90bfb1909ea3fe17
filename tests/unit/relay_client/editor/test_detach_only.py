"""Facts about requests that would end the job, of an editor that listens."""

from typing import Any

import pytest

from relay_client.editor.detach_only import DetachOnly, harmless
from relay_core.dap.framing import encode
from relay_core.layers.layer import EndPeer, ToPeer
from tests.support.layers import Alone


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
    assert [ToPeer(encode(received))] == Alone(DetachOnly()).receive_local(encode(sent), 0)


@pytest.mark.parametrize(
    "sent", [request("disconnect"), request("disconnect", terminateDebuggee=False), request("evaluate", x="terminate")]
)
def test_other_requests_pass(sent: dict[str, Any]) -> None:
    """The bytes are the same."""
    data = encode(sent)
    assert [ToPeer(data)] == Alone(DetachOnly()).receive_local(data, 0)


def test_an_incomplete_message_passes_at_the_end() -> None:
    """Nothing is kept back when the adapter closes its connection."""
    layer = Alone(DetachOnly())
    assert [] == layer.receive_local(b"Content-Length: 100\r\n\r\n{", 0)
    assert [ToPeer(b"Content-Length: 100\r\n\r\n{"), EndPeer()] == layer.receive_local_eof(0)
    assert "<DetachOnly>" == repr(layer.layer)

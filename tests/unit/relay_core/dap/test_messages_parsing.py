"""Facts about the JSON of messages of the debug adapter protocol."""

import pytest

from relay_core.dap.messages import arguments_of, is_message, parse
from relay_core.errors import ProtocolError

REQUEST, RESPONSE, EVENT = (
    {"type": "request", "seq": 1, "command": "next"},
    {"type": "response", "request_seq": 1},
    {"type": "event", "event": "stopped"},
)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"seq":1}', b"[" * 100_000])
def test_invalid_bodies(body):
    """A body that is not a JSON object with a type is a ProtocolError."""
    with pytest.raises(ProtocolError, match="does not use the Debug Adapter Protocol"):
        parse(body)


@pytest.mark.parametrize("message", [REQUEST, RESPONSE, EVENT], ids=lambda message: message["type"])
def test_required_fields(message):
    """A message is of its own type only, and only with all required fields."""
    kinds = ("request", "response", "event")
    assert [message["type"]] == [kind for kind in kinds if is_message(message, kind)]
    for field in message:
        assert not is_message({name: value for name, value in message.items() if name != field}, message["type"])


@pytest.mark.parametrize("request_", [REQUEST, {**REQUEST, "arguments": None}, {**REQUEST, "arguments": [1]}])
def test_request_without_arguments(request_):
    """A request without arguments, or with arguments that are not an object, has empty ones."""
    assert {} == arguments_of(request_)

"""Facts about control channel messages."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import ProtocolError
from relay_core.hyco.http import RemoteEndpoint, Request, Response, find_header
from relay_core.hyco.messages import Accept, RenewToken, parse_listener_message, parse_server_message

ADDRESS = "wss://g13/$hc/hyco?sb-hc-action=accept&sb-hc-id=7b17ae72-fddb-4c9b-a8f9-94c2654aa0fe_G14"
ACCEPT = Accept(
    address=ADDRESS,
    id="7b17ae72-fddb-4c9b-a8f9-94c2654aa0fe_G14",
    connect_headers={"Host": "h", "X-App": "1"},
    remote_endpoint=RemoteEndpoint("203.0.113.9", 51544),
)


def test_accept_round_trip() -> None:
    """An accept message encodes to what it was parsed from."""
    assert ACCEPT == parse_server_message(ACCEPT.encode())


def test_accept_has_one_top_level_key() -> None:
    """Extra top-level keys crash Java's control channel, so there are none."""
    assert ["accept"] == list(json.loads(ACCEPT.encode()))


def test_header_lookup_ignores_case() -> None:
    """A sender's header is found in any case."""
    assert find_header(ACCEPT.connect_headers, "x-APP") == "1"
    assert find_header(ACCEPT.connect_headers, "missing") is None


@pytest.mark.parametrize("remote", [None, "text", {"address": 1, "port": 2}, {"address": "a"}])
def test_remote_endpoint_is_optional(remote: object) -> None:
    """A missing or odd remoteEndpoint does not spoil an offer."""
    text = json.dumps({"accept": {"address": ADDRESS, "id": "x", "connectHeaders": {}, "remoteEndpoint": remote}})
    message = parse_server_message(text)
    assert isinstance(message, Accept)
    assert message.remote_endpoint is None


def test_repr_hides_address_and_headers() -> None:
    """The rendezvous address is a credential and the headers may hold cookies."""
    assert ADDRESS not in repr(ACCEPT)
    assert "X-App" not in repr(ACCEPT)


def test_requests_are_recognised() -> None:
    """An HTTP request is distinguished from an offer."""
    assert Request("wss://x?y") == parse_server_message('{"request": {"address": "wss://x?y"}}')


def test_unknown_messages_are_skipped() -> None:
    """A message of a later service version is not an error."""
    assert parse_server_message('{"injectFault": {"delay": 1}}') is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"accept": 1}',
        '{"accept": {}}',
        '{"a": {}, "b": {}}',
        '{"accept": {"address": "http://x"}}',
    ],
)
def test_broken_messages_are_protocol_errors(text: str) -> None:
    """A text that is not a control message is refused."""
    with pytest.raises(ProtocolError):
        parse_server_message(text)


@given(
    st.text()
    | st.recursive(st.none() | st.text() | st.integers(), lambda x: st.dictionaries(st.text(), x)).map(json.dumps)
)
def test_any_text_gives_a_message_or_a_protocol_error(text: str) -> None:
    """No text makes parsing fail in another way."""
    for parse in (parse_server_message, parse_listener_message):
        with contextlib.suppress(ProtocolError):
            parse(text)


def test_renew_token_round_trip() -> None:
    """A token is carried as it is, not percent-encoded again."""
    token = "SharedAccessSignature sr=a%2fb&sig=c%3D&se=1&skn=k"
    assert RenewToken(token) == parse_listener_message(RenewToken(token).encode())
    assert token not in repr(RenewToken(token))


def test_responses_are_recognised() -> None:
    """A response is not taken for a renewal."""
    assert Response("1", 0) == parse_listener_message('{"response": {"requestId": "1"}}')


def test_renewal_without_token_is_refused() -> None:
    """A renewToken message must carry a token."""
    with pytest.raises(ProtocolError, match="no token"):
        parse_listener_message('{"renewToken": {}}')

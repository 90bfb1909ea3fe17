"""Facts about the lines of a control connection: greeting, requests, results, errors and events."""

import contextlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_client.control.messages import OWN, Attach, Attached, GetStatus, LogLines, Logs, Subscribe
from relay_client.control.protocol import MAX_REQUEST, ClientProtocol, Received, ServerProtocol
from relay_client.control.service import ControlService
from relay_client.control.state import ClientId
from relay_client.ranks.changes import Event
from relay_core.errors import LocalPortInUse, ProtocolError, Rejected, RelayDebugError, Unauthorized

HELLO = ClientId("1a2b3c4d", 12, "contoso.servicebus.windows.net", "myhc", "forward", 1.0, "/home/alice", "1.0")
TOKEN = "t" * 64


def greeted(*, token: str | None = None) -> tuple[ServerProtocol, ClientProtocol]:
    """Return both ends after the greeting."""
    server = ServerProtocol(HELLO, token=token, challenge="c1")
    client = ClientProtocol(token=token, nonce="n1")
    received = client.receive_data(server.data_to_send())
    if token is not None:
        assert [] == received
        server.receive_data(client.data_to_send())
        received = client.receive_data(server.data_to_send())
    assert [Received(hello=HELLO)] == received
    return server, client


@pytest.mark.parametrize("token", [None, TOKEN])
def test_requests_results_and_events(token: str | None) -> None:
    """A request arrives with its id, and what is sent for it arrives with the same."""
    server, client = greeted(token=token)
    assert 1 == client.send_request(Attach(3, wait=True))
    assert 2 == client.send_request(GetStatus())
    requests = server.receive_data(client.data_to_send())
    assert [(1, Attach(3, wait=True)), (2, GetStatus())] == requests
    event = Event("stopped", 2.0, "rank 3 is stopped", rank=3)
    server.send_event(event)
    server.send_result(1, Attached(5681, 5681, "127.0.0.1", is_new=True, rank=3))
    received, answered = client.receive_data(server.data_to_send())
    assert event == received.event
    assert (1, 5681) == (answered.id, (answered.result or {})["local_port"])


def test_the_token_is_never_sent() -> None:
    """Only proofs travel, in both directions, and another challenge needs another proof."""
    server, client = ServerProtocol(HELLO, token=TOKEN, challenge="c1"), ClientProtocol(token=TOKEN, nonce="n1")
    first = server.data_to_send()
    client.receive_data(first)
    proof = client.data_to_send()
    server.receive_data(proof)
    assert TOKEN.encode() not in first + proof + server.data_to_send()
    with pytest.raises(Unauthorized):
        ServerProtocol(HELLO, token=TOKEN, challenge="c2").receive_data(proof)


@pytest.mark.parametrize(
    "line", [b'{"id": 1, "request": "status"}\n', b'{"nonce": "n1", "proof": "\\u00e9"}\n', b"{}\n"]
)
def test_nobody_gets_in_without_the_token(line: bytes) -> None:
    """A client that proves nothing learns not even which relay-client this is."""
    server = ServerProtocol(HELLO, token=TOKEN, challenge="c1")
    assert b"myhc" not in server.data_to_send()
    with pytest.raises(Unauthorized, match="a program without the token"):
        server.receive_data(line)
    assert (b"", False) == (server.data_to_send(), server.is_open)


def test_an_impostor_is_noticed() -> None:
    """A server that does not know the token cannot pose as a relay-client."""
    client = ClientProtocol(token=TOKEN, nonce="n1")
    impostor = ServerProtocol(HELLO, token="guess", challenge="c1")
    client.receive_data(impostor.data_to_send())
    client.data_to_send()
    lines = json.dumps({"hello": {}, "proof": "0" * 64}).encode() + b"\n"
    with pytest.raises(Unauthorized, match="another program is listening"):
        client.receive_data(lines)


def test_errors_keep_their_kind() -> None:
    """Sentence, hint and exit code arrive; an error that needs more than that becomes a general one."""
    server, client = greeted()
    server.send_error(1, LocalPortInUse("port 5678 is in use", hint="use another one"))
    server.send_error(2, Rejected("refused", status=403, reason="no"))
    first, second = client.receive_data(server.data_to_send())
    assert isinstance(first.error, LocalPortInUse)
    assert ("port 5678 is in use", "use another one") == (first.error.sentence, first.error.hint)
    assert RelayDebugError is type(second.error)


@pytest.mark.parametrize(
    ("line", "sentence", "code"),
    [
        (b'{"id": 7, "request": "explode"}', "unknown request: 'explode'", 2),
        (b'{"id": 7, "request": "attach", "rank": "3"}', "invalid Attach.rank: unexpected type str", 13),
        (b'{"id": 7}', "unknown request: 'None'", 2),
    ],
)
def test_invalid_requests_are_answered(line: bytes, sentence: str, code: int) -> None:
    """The connection continues after an unknown or malformed request."""
    server, client = greeted()
    assert [] == server.receive_data(line + b"\n")
    answer = json.loads(server.data_to_send())
    assert (7, sentence, code) == (answer["id"], answer["error"]["sentence"], answer["error"]["exit_code"])
    client.send_request(Subscribe())
    assert [(1, Subscribe())] == server.receive_data(client.data_to_send())


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\n", b"[]\n", b'{"request": "status"}\n', b"x" * (MAX_REQUEST + 1)])
def test_what_is_not_the_protocol_ends_the_connection(line: bytes) -> None:
    """Bytes that are not lines of requests are an error, as is a line without end."""
    server, _ = greeted()
    with pytest.raises(ProtocolError):
        server.receive_data(line)


@given(st.lists(st.integers(1, 40)), st.sampled_from([None, TOKEN]))
def test_chunks_change_nothing(sizes: list[int], token: str | None) -> None:
    """However the bytes are cut, the same messages arrive."""
    server, client = greeted(token=token)
    client.send_request(Logs(5, follow=True))
    client.send_request(GetStatus())
    data, found = client.data_to_send(), []
    for size in sizes:
        found += server.receive_data(data[:size])
        data = data[size:]
    found += server.receive_data(data)
    assert [(1, Logs(5, follow=True)), (2, GetStatus())] == found
    server.send_result(1, LogLines())
    assert [Received(id=1, result={"lines": []})] == client.receive_data(server.data_to_send())


def test_each_byte_is_searched_once() -> None:
    """The beginning of a long line is neither searched nor copied when its next bytes arrive."""
    _, client = greeted()
    client.receive_data(b"x" * (8 << 20))
    tracemalloc.start()
    try:
        for _ in range(100):
            client.receive_data(b"x")
        assert tracemalloc.get_traced_memory()[1] < 12 << 20  # a copy would be as long as the line, beside the line
    finally:
        tracemalloc.stop()


def test_each_request_has_its_method() -> None:
    """A running relay-client has one method for each request that only it can perform."""
    assert [f"_do_{kind.name}" for kind in OWN if not callable(getattr(ControlService, f"_do_{kind.name}", None))] == []
    assert len(OWN) == sum(name.startswith("_do_") for name in vars(ControlService))


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_or_an_error(data: bytes) -> None:
    """Neither end raises anything but the documented errors."""
    server, client = greeted()
    unauthenticated = ServerProtocol(HELLO, token=TOKEN, challenge="c1")
    for end in (server, client, unauthenticated, ClientProtocol(token=TOKEN, nonce="n"), ClientProtocol()):
        with contextlib.suppress(RelayDebugError):
            end.receive_data(data + b"\n")

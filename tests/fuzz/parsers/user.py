"""Parsers of what programs of other users send to the control socket, and of what users type."""

from __future__ import annotations

import contextlib

from relay_client.control.protocol import ClientProtocol, ServerProtocol
from relay_client.control.state import ClientId
from relay_core.errors import ConfigurationError, ProtocolError, Unauthorized, UsageError
from relay_core.hyco.connection_string import ConnectionString
from relay_core.value_parsers import expand_ranges, parse_duration, parse_flag, parse_port, parse_ranges
from tests.fuzz.registry import KEY, NOW, as_text, documented, in_pieces, parser

CLIENT = ClientId("0f0f0f0f", 1, "localhost", "myhc", "forward", NOW, "/", "1.0")


# What a program of another user sends to the control socket of relay-client, or answers in its place:


@parser
def control_requests(data: bytes) -> None:
    for token in (None, KEY):
        server = ServerProtocol(CLIENT, token=token, challenge="a challenge")
        with documented(ProtocolError, Unauthorized):
            requests = [request for piece in in_pieces(data) for request in server.receive_data(piece)]
            assert not (token and requests)  # no request passes without the token
        server.data_to_send()


@parser
def control_responses(data: bytes) -> None:
    for token in (None, KEY):
        client = ClientProtocol(token=token, nonce="a nonce")
        with documented(ProtocolError, Unauthorized):
            received = [message for piece in in_pieces(data) for message in client.receive_data(piece)]
            assert not (token and received)
        client.data_to_send()


# What users and their secrets contain:


@parser
def connection_string(data: bytes) -> None:
    with documented(ConfigurationError):
        ConnectionString.parse(as_text(data)).endpoint().connect_url()


@parser
def option_values(data: bytes) -> None:
    text = as_text(data)
    for parse in (parse_duration, parse_flag, parse_port):
        with contextlib.suppress(UsageError, ConfigurationError):  # they quote what the user has typed
            parse(text)
    with contextlib.suppress(UsageError):
        assert len(expand_ranges(parse_ranges(text, what="port", example="5678"), what="ports", limit=256)) <= 256

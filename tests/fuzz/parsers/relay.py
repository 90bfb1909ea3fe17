"""Parsers of what a relay sends to agents and clients, and of what anybody sends to relay-server."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from relay_core.errors import ConfigurationError, ProtocolError
from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER
from relay_core.hyco.http import Response
from relay_core.hyco.messages import parse_listener_message, parse_server_message
from relay_core.hyco.sas import SasToken
from relay_core.ws.frames import Chunk
from relay_core.ws.frames import FrameDecoder as WebSocketDecoder
from relay_server.access import Authorizer
from relay_server.config import file as relay_file
from relay_server.config.model import HybridConnection, Right, Rule
from relay_server.protocol.http import HeadReader
from relay_server.protocol.refusals import Refusal
from relay_server.protocol.requests import HybridRequest, is_hybrid
from tests.fuzz.registry import KEY, NOW, as_json, as_text, documented, in_pieces, parser
from tests.support.azure.entra import Issuer, sign

HC = HybridConnection("myhc")
CHUNKED = b"POST /myhc HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


# What a relay sends to agents and clients:


@parser
def control_message(data: bytes) -> None:
    with documented(ProtocolError):
        parse_server_message(as_text(data))
    with documented(ProtocolError):
        if isinstance(message := parse_listener_message(as_text(data)), Response):
            message.check()


@parser
def websocket_frames(data: bytes) -> None:
    def decoded(pieces: list[bytes]) -> tuple[bytes, list[object]]:
        decoder = WebSocketDecoder()
        events = [event for piece in pieces for event in decoder.feed(piece)]
        chunks = [event for event in events if isinstance(event, Chunk)]
        assert sum(len(chunk.payload) for chunk in chunks) <= len(data)
        return b"".join(chunk.payload for chunk in chunks), [event for event in events if not isinstance(event, Chunk)]

    assert decoded([data]) == decoded(in_pieces(data))


# What senders and listeners send to relay-server:


@parser
def request_head(data: bytes) -> None:
    with documented(Refusal):
        reader = HeadReader()
        head = next((found for piece in in_pieces(data) if (found := reader.feed(piece))), None)
        if head is None or not is_hybrid(head):
            return
        request = HybridRequest.parse(head)
        assert request.action
        request.rejection()
        request.accept_message(public="relay:443", identity="1", secret="1", remote=("127.0.0.1", 1))
        head.check_upgrade()
        _ = request.path, request.token, request.listener_ids(ALLOWED_LISTENERS_HEADER)


@parser
def request_body(data: bytes) -> None:
    def decoded(pieces: list[bytes]) -> tuple[bytes, bool] | None:
        reader, received, is_complete = HeadReader(), b"", False
        reader.feed(CHUNKED)
        with documented(Refusal):
            for piece in pieces:
                body, is_complete = reader.feed_body(piece)
                received += body
                if is_complete:
                    break
            return received, is_complete
        return None

    whole = decoded([data])
    assert whole == decoded(in_pieces(data))
    assert whole is None or len(whole[0]) <= len(data)


@parser
def access_token(data: bytes) -> None:
    _check_token(as_text(data))


@parser
def jwt_claims(data: bytes) -> None:
    claims = as_json(data)
    if isinstance(claims, dict):
        _check_token(sign({"alg": "RS256", "typ": "JWT"}, claims))


@cache
def _authorizer() -> Authorizer:
    rule = Rule("send", frozenset({Right.SEND}), KEY)
    with tempfile.TemporaryDirectory() as directory:
        return Authorizer(hosts=("localhost",), rules=(rule,), issuers=[Issuer().settings(Path(directory))])


def _check_token(text: str) -> None:
    with documented(Refusal):
        _authorizer().check(text, right=Right.SEND, path="myhc", connection=HC, now=NOW)


@parser
def sas_token(data: bytes) -> None:
    with documented(ProtocolError):
        token = SasToken.parse(as_text(data))
        assert token.expires_at >= 0
        token.is_signed_with(KEY)
        token.covers(host="localhost", path="myhc")


@parser
def relay_toml(data: bytes) -> None:
    with documented(ConfigurationError):
        relay_file.parse(as_text(data), directory=Path())

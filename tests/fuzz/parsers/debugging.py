"""Parsers of what a debugged process, an editor and the processes of a node send."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from relay_agent.agent.prefetch_layer import PrefetchLayer
from relay_agent.node import protocol as node
from relay_client.job_session.members import RankName
from relay_client.job_session.session import JobSession
from relay_client.job_session.wire import ToEditor
from relay_client.ports.layers import SUBPROCESS_EVENTS, RequestGuard
from relay_client.prefetch import ResponseCache
from relay_core.dap.framing import MessageDecoder
from relay_core.dap.messages import Message
from relay_core.errors import ProtocolError
from relay_core.layers.layer import Layer, ToLocal
from relay_core.layers.piece import MessageSplitter
from tests.fuzz.registry import NOW, as_json, documented, in_pieces, parser
from tests.support.sessions.layers import Alone

ATTACHED = b'Content-Length: 35\r\n\r\n{"type":"event","event":"attached"}'


@parser
def dap_messages(data: bytes) -> None:
    def decoded(pieces: list[bytes]) -> list[object] | None:
        decoder = MessageDecoder()
        with documented(ProtocolError):
            return [message for piece in pieces for message in decoder.receive_data(piece)]
        return None

    assert decoded([data]) == decoded(in_pieces(data))


@parser
def dap_splitter(data: bytes) -> None:
    def split(pieces: list[bytes]) -> bytes:
        splitter = MessageSplitter(ToLocal)
        return b"".join(cut.data for data in pieces for cut in [*splitter.feed(data, 256)]) + b"".join(
            cut.data for cut in splitter.end()
        )

    assert split([data]) == split(in_pieces(data)) == data


@parser
def reverse_requests(data: bytes) -> None:
    refused: list[str] = []
    guard = Alone(RequestGuard(5678, refused.append))
    outputs = [output for piece in in_pieces(data) for output in guard.receive_peer(piece, NOW)]
    to_editor = b"".join(output.data for output in outputs if isinstance(output, ToLocal))
    for length, body in re.findall(rb"(?i)content-length:\s*([0-9]{1,9})\s*\r\n\r\n(.*)", to_editor, re.DOTALL):
        message = as_json(body[: int(length)])  # as an editor reads that looks for a header anywhere
        if isinstance(message, dict):
            assert message.get("type") != "request"
            assert message.get("event") not in SUBPROCESS_EVENTS


@parser
def prefetch_of_client(data: bytes) -> None:
    _both_ways(ResponseCache, data)


@parser
def prefetch_of_agent(data: bytes) -> None:
    _both_ways(PrefetchLayer, data)


def _both_ways(kind: Callable[[], Layer], data: bytes) -> None:
    """Feed a layer pieces from alternating sides; the input is what one side sends, or what both do."""
    layer, from_peer = Alone(kind()), Alone(kind())
    for number, piece in enumerate(in_pieces(data)):
        layer.receive_local(piece, NOW) if number % 2 else layer.receive_peer(piece, NOW)
        from_peer.receive_peer(piece, NOW)
    from_peer.receive_local(ATTACHED, NOW)


@parser
def job_session(data: bytes) -> None:
    session = JobSession()
    session.receive_editor(_request(1, "initialize"), NOW)
    session.receive_editor(_request(2, "attach"), NOW)
    for number in (0, 1):
        session.join(number, RankName(f"rank {number}", number))
    session.receive_editor(_request(3, "configurationDone"), NOW)
    for number, line in enumerate(data.split(b"\n")):
        message = as_json(line)
        if isinstance(message, dict):
            session.receive_rank(number % 2, message, NOW + number)
            session.tick(NOW + number)
    for number in (0, 1):
        session.lost(number, NOW)
    session.tick(NOW + 100)
    for output in session.wire.take():
        if isinstance(output, ToEditor):
            json.dumps(output.message)
            assert output.message["type"] != "request"  # no debugger of a rank makes an editor do anything


def _request(number: int, command: str) -> Message:
    return {"seq": number, "type": "request", "command": command, "arguments": {}}


@parser
def node_message(data: bytes) -> None:
    message = node.decode(data)
    assert isinstance(message, dict)
    node.encode(message)

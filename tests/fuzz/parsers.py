"""Every parser of bytes that somebody else has sent, as a function of one byte string.

Each function raises only if there is a defect: it suppresses the errors that its parser documents, and asserts what
holds for any input. A parser of a stream gets the input as a whole and in pieces, and must return the same both times.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from relay_agent.collectives.flight_recorder import parse_dump
from relay_agent.collectives.ras_status import parse_status
from relay_agent.node import protocol as node
from relay_agent.prefetch.layer import PrefetchLayer
from relay_client.control.protocol import ClientProtocol, ServerProtocol
from relay_client.control.state import ClientId
from relay_client.hang.output import verdict_as_object, verdict_as_text
from relay_client.hang.reports import NodeReply, read_jobs
from relay_client.hang.verdict import JobVerdict
from relay_client.job_session.members import RankName
from relay_client.job_session.session import JobSession
from relay_client.job_session.wire import ToEditor
from relay_client.ports.reverse_requests import SUBPROCESS_EVENTS, ReverseRequestGuard
from relay_client.prefetch.response_cache import ResponseCache
from relay_core.agent_api.announcement import AgentId, AgentInfo, TargetInfo
from relay_core.agent_api.collectives import MAX_OPERATIONS, NodeCollectives
from relay_core.agent_api.ending import Ending
from relay_core.agent_api.evaluation import Evaluate, NodeValues
from relay_core.agent_api.fitting import MAX_ANNOUNCEMENT, fit
from relay_core.agent_api.metadata import ClientInfo, ClientStatus, StreamMetadata
from relay_core.agent_api.push import NodePushed, Push
from relay_core.agent_api.ras import RasStatus
from relay_core.agent_api.requests import Failure, parse_request
from relay_core.agent_api.stacks import NodeStacks
from relay_core.dap.framing import MessageDecoder
from relay_core.dap.messages import Message
from relay_core.errors import ConfigurationError, ProtocolError, RelayDebugError, Unauthorized, UsageError
from relay_core.hyco.connection_string import ConnectionString
from relay_core.hyco.http.messages import Response
from relay_core.hyco.messages import parse_listener_message, parse_server_message
from relay_core.hyco.sas import SasToken
from relay_core.layers.layer import Layer, ToLocal
from relay_core.layers.splitter import MessageSplitter
from relay_core.net.session.secure_channel import SecureChannel
from relay_core.net.session.tunnel_identity import TunnelIdentity
from relay_core.ranges import expand_ranges, parse_ranges
from relay_core.tunnel import AgentHandshake, ClientHandshake, SessionTable, Settings, StreamOpened
from relay_core.tunnel.frames import Frame
from relay_core.tunnel.frames import FrameDecoder as TunnelDecoder
from relay_core.tunnel.limits import Limits
from relay_core.tunnel.messages import Greeting
from relay_core.tunnel.outcomes import ProtocolBreach, Role
from relay_core.tunnel.session import Session
from relay_core.values import escape_controls, parse_duration, parse_flag, parse_port
from relay_core.ws.frames import Chunk
from relay_core.ws.frames import FrameDecoder as WebSocketDecoder
from relay_server.access.jwt import JwtVerifier
from relay_server.access.rules import Authorizer, SasVerifier
from relay_server.config import file as relay_file
from relay_server.config.model import HybridConnection, Right, Rule
from relay_server.protocol.http import HeadReader
from relay_server.protocol.refusals import Refusal
from relay_server.protocol.requests import HybridRequest, is_hybrid
from tests.support.entra import Issuer, sign
from tests.support.layers import Alone
from tests.support.tunnel_link import ENTROPY

__all__ = ["PARSERS", "Parser"]

Parser = Callable[[bytes], None]

MAX_SENTENCE = 2000
"""Characters of an error; it must not repeat an input of any length."""
NOW = 1_800_000_000.0
MAX_RAS_STATUS = 2 << 20
"""Characters: 64 communicators with 16 remarks of 200 characters, each of which JSON may write as six."""
HC = HybridConnection("myhc")
KEY = "a key of this test"
LIMITS = Limits(max_payload=1024, window=4096, max_streams=4)
CLIENT = ClientId("0f0f0f0f", 1, "localhost", "myhc", "forward", NOW, "/", "1.0")
CHUNKED = b"POST /myhc HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
ATTACHED = b'Content-Length: 35\r\n\r\n{"type":"event","event":"attached"}'
PARSERS: dict[str, Parser] = {}
"""By the name of their corpus directory."""


def parser(function: Parser) -> Parser:
    """Register a function under its name."""
    PARSERS[function.__name__] = function
    return function


@contextlib.contextmanager
def documented(*errors: type[Exception]) -> Iterator[None]:
    """Suppress errors, and check that people can read them: short, and without control characters."""
    text = ""
    try:
        yield
    except errors as error:
        text = str(error)
    assert text.isprintable(), repr(text)
    assert len(text) < MAX_SENTENCE, text


def in_pieces(data: bytes) -> list[bytes]:
    """Cut the input; its first byte is the size of the pieces."""
    size = max(1, data[0] % 64) if data else 1
    return [data[at : at + size] for at in range(0, len(data), size)]


def as_json(data: bytes) -> object:
    """Return the JSON in the input, or None."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(data)
    return None


def as_text(data: bytes) -> str:
    return data.decode(errors="replace")


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
        request.rejection("&sb-hc-id=1")
        request.accept_message(public="relay:443", identity="1", secret=("s", "1"), remote=("127.0.0.1", 1))
        head.check_upgrade()
        _ = request.path, request.token, request.allowed_listeners


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
    with tempfile.TemporaryDirectory() as directory:
        tokens = JwtVerifier([Issuer().settings(Path(directory))])
    rule = Rule("send", frozenset({Right.SEND}), KEY)
    return Authorizer([SasVerifier(hosts=("localhost",), rules=(rule,)), tokens])


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


# What client and agent send to each other:


@parser
def tunnel_frames(data: bytes) -> None:
    def decoded(pieces: list[bytes]) -> list[Frame]:
        decoder, frames = TunnelDecoder(LIMITS.max_payload), []
        with documented(ProtocolBreach):
            for piece in pieces:
                frames.extend(decoder.feed(piece))  # keeps those before an error
        return frames

    assert decoded([data]) == decoded(in_pieces(data))


@parser
def agent_handshake(data: bytes) -> None:
    handshake = AgentHandshake(SessionTable(Settings()), ENTROPY)
    for piece in in_pieces(data):
        if handshake.receive_data(piece, NOW) is not None:
            return


@parser
def client_handshake(data: bytes) -> None:
    handshake = ClientHandshake.hello(Settings())
    for piece in in_pieces(data):
        if handshake.receive_data(piece, NOW) is not None:
            return


@parser
def session(data: bytes) -> None:
    settings = Settings(limits=LIMITS)
    agent = Session(Role.AGENT, session_id=bytes(16), secret=bytes(32), settings=settings, peer=Greeting(LIMITS), now=0)
    agent.attach(agent.next_epoch(), 0, 0.0)
    for number, piece in enumerate(in_pieces(data)):
        agent.receive_data(agent.epoch, piece, number / 10)
        for event in agent.events():
            if isinstance(event, StreamOpened):
                agent.streams.accept(event.stream)
        assert len(agent.streams) <= LIMITS.max_streams
        agent.data_to_send(agent.epoch, number / 10)
        agent.tick(number / 10)


@parser
def secure_channel(data: bytes) -> None:
    for role in Role:
        channel = SecureChannel(_identity(role))
        with documented(RelayDebugError):
            for piece in in_pieces(data):
                assert channel.feed(piece) == b""  # nobody without the key is heard


@cache
def _identity(role: Role) -> TunnelIdentity:
    return TunnelIdentity(role, bytes(32))


@parser
def announcement(data: bytes) -> None:
    value = as_json(data)
    info = AgentInfo.parse(value)
    assert AgentInfo.parse(info.encode()) == info
    assert len(json.dumps(fit(info.encode()), separators=(",", ":"))) <= MAX_ANNOUNCEMENT
    for kind in (ClientInfo, ClientStatus, StreamMetadata, NodeStacks):
        kind.parse(value)
    Failure.parse(value)


@parser
def evaluation(data: bytes) -> None:
    value = as_json(data)
    for response, request in ((NodeValues, Evaluate), (NodePushed, Push)):
        assert response.parse(response.parse(value).encode()) == response.parse(value)
        with documented(UsageError):
            assert request.parse_body(request.parse_body(value).body()) == request.parse_body(value)


@parser
def collectives(data: bytes) -> None:
    value = as_json(data)
    found = NodeCollectives.parse(value, escape_controls)
    assert NodeCollectives.parse(found.encode()).encode() == found.encode()
    targets = tuple(TargetInfo(5678 + rank, rank=rank, world=4) for rank in range(4))
    reply = NodeReply(AgentInfo(AgentId("a"), targets=targets, endings=(Ending(5680, signal=9),)), found)
    verdicts = [JobVerdict.of(job) for job in read_jobs([reply])]
    assert verdict_as_text(verdicts).replace("\n", "").isprintable()
    json.dumps(verdict_as_object(verdicts))


@parser
def stream_target(data: bytes) -> None:
    request = parse_request(as_text(data))
    assert request is None or parse_request(request.encode()) == request


# What torch and NCCL in a job, or something else on NCCL's port, hand to the agent:


@parser
def flight_recorder(data: bytes) -> None:
    for kind in ("other", "nccl"):
        groups, _ = parse_dump(as_json(data), kind, NOW)
        assert all(len(group.operations) <= MAX_OPERATIONS for group in groups)
        assert all(group.completed <= group.enqueued for group in groups)


@parser
def ras_answer(data: bytes) -> None:
    status = parse_status(as_text(data))
    assert RasStatus.parse(status.encode()).communicators == status.communicators
    assert len(json.dumps(status.encode())) < MAX_RAS_STATUS


# What a debugged process and an editor send:


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
    guard = Alone(ReverseRequestGuard(5678, refused.append))
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
    for output in session.take():
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


# What a program of another user sends to the control socket of relay-client, or answers in its place:


@parser
def control_requests(data: bytes) -> None:
    for token in (None, KEY):
        server = ServerProtocol(CLIENT, token=token, challenge="a challenge")
        with documented(ProtocolError, Unauthorized):
            requests = [request for piece in in_pieces(data) for request in server.receive_data(piece)]
            assert not (token and requests)  # nobody without the token is heard
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

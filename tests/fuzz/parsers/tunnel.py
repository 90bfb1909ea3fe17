"""Parsers of what client and agent send to each other, and of what the agent reads from torch and NCCL."""

from __future__ import annotations

import json
from functools import cache

from relay_agent.collectives.flight_recorder import parse_dump
from relay_agent.collectives.ras import parse_status
from relay_client.hang.output import verdict_as_object, verdict_as_text
from relay_client.hang.reports import NodeReply, read_jobs
from relay_client.hang.verdict import JobVerdict
from relay_core.agent_api.announcement import MAX_ANNOUNCEMENT, AgentId, AgentInfo, Ending, TargetInfo, fit
from relay_core.agent_api.collectives import MAX_OPERATIONS, ProcessCollectives, RasStatus
from relay_core.agent_api.evaluation import Evaluate, Value
from relay_core.agent_api.metadata import ClientInfo, ClientStatus, StreamMetadata
from relay_core.agent_api.push import Push, Pushed
from relay_core.agent_api.questions import NodeReplies, Reply
from relay_core.agent_api.requests import Failure, parse_request, stream_name
from relay_core.agent_api.stacks import ProcessStacks
from relay_core.errors import RelayDebugError, UsageError
from relay_core.foreign import escape_controls
from relay_core.net.session.secure_channel import SecureChannel
from relay_core.net.session.tunnel_certificates import TunnelIdentity
from relay_core.records import encode, parse, parse_or_none
from relay_core.tunnel.events import StreamOpened
from relay_core.tunnel.frames import Frame
from relay_core.tunnel.frames import FrameDecoder as TunnelDecoder
from relay_core.tunnel.handshake import HelloHandshake
from relay_core.tunnel.limits import Limits, Settings
from relay_core.tunnel.messages import Greeting
from relay_core.tunnel.outcomes import ProtocolBreach, Role
from relay_core.tunnel.session import Session
from relay_core.tunnel.session_table import AgentHandshake, SessionTable
from tests.fuzz.registry import NOW, as_json, as_text, documented, in_pieces, parser
from tests.support.sessions.tunnel_link import ENTROPY

MAX_RAS_STATUS = 2 << 20
"""Characters: 64 communicators with 16 remarks of 200 characters, each of which JSON may write as six."""
LIMITS = Limits(max_payload=1024, window=4096, max_streams=4)


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
    handshake = HelloHandshake(Settings())
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
                assert channel.feed(piece) == b""  # no data passes without the key


@cache
def _identity(role: Role) -> TunnelIdentity:
    return TunnelIdentity(role, bytes(32))


@parser
def announcement(data: bytes) -> None:
    value = as_json(data)
    info = AgentInfo.parse(value)
    assert AgentInfo.parse(encode(info)) == info
    assert len(json.dumps(fit(info)[0], separators=(",", ":"))) <= MAX_ANNOUNCEMENT
    for kind in (ClientInfo, ClientStatus, StreamMetadata, ProcessStacks):
        parse(kind, value)
    parse_or_none(Failure, value)


@parser
def evaluation(data: bytes) -> None:
    value = as_json(data)
    for response, request in ((Value, Evaluate), (Pushed, Push)):
        assert parse(response, encode(parse(response, value))) == parse(response, value)
        with documented(UsageError):
            assert request.parse_body(encode(request.parse_body(value))) == request.parse_body(value)


@parser
def collectives(data: bytes) -> None:
    value = as_json(data)
    for kind in (NodeReplies, ProcessCollectives):
        found = parse(kind, value, escape_controls)
        assert encode(parse(kind, encode(found))) == encode(found)
    targets = tuple(TargetInfo(5678 + rank, rank=rank, world=4) for rank in range(4))
    found = (Reply(5678 + rank, rank, value, stacks=stacks) for rank, stacks in enumerate((None, value)))
    replies = NodeReplies(tuple(found), value)
    reply = NodeReply(AgentInfo(AgentId("a"), targets=targets, endings=(Ending(5680, signal=9),)), replies)
    verdicts = [JobVerdict.of(job) for job in read_jobs([reply])]
    shown = verdict_as_object(verdicts)
    assert verdict_as_text(shown).replace("\n", "").isprintable()
    json.dumps(shown)


@parser
def stream_target(data: bytes) -> None:
    request = parse_request(as_text(data))
    assert request is None or parse_request(stream_name(request)) == request


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
    assert parse(RasStatus, encode(status)).communicators == status.communicators
    assert len(json.dumps(encode(status))) < MAX_RAS_STATUS

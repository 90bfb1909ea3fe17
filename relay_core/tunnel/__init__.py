"""The tunnel protocol between client and agent, sans-IO: bytes in, bytes and events out.

A session carries streams and outlives its transports. This package implements streams, sequence numbers and resume;
encryption is in `relay_core.net.session.secure_channel`. No module here opens a socket, reads a clock or draws a random
number. `docs/concepts/protocol.md` describes the wire format and the state machines.
"""

from relay_core.tunnel.events import (
    DataReceived,
    EofReceived,
    Event,
    MessageReceived,
    RoundTrip,
    SessionOver,
    StatusReceived,
    StreamOpened,
    StreamReset,
    StreamWritable,
    TransportDead,
)
from relay_core.tunnel.handshake import Attached, ClientHandshake, NotAttached
from relay_core.tunnel.limits import HANDSHAKE_TIMEOUT, PROBE_TIMEOUT, Limits, Settings
from relay_core.tunnel.outcomes import Breach, Death, OverReason, Refusal, ResetCode, Role, StreamLimitReached
from relay_core.tunnel.session import Session
from relay_core.tunnel.sessions import ENTROPY_SIZE, AgentHandshake, SessionTable

__all__ = [
    "ENTROPY_SIZE",
    "HANDSHAKE_TIMEOUT",
    "PROBE_TIMEOUT",
    "AgentHandshake",
    "Attached",
    "Breach",
    "ClientHandshake",
    "DataReceived",
    "Death",
    "EofReceived",
    "Event",
    "Limits",
    "MessageReceived",
    "NotAttached",
    "OverReason",
    "Refusal",
    "ResetCode",
    "Role",
    "RoundTrip",
    "Session",
    "SessionOver",
    "SessionTable",
    "Settings",
    "StatusReceived",
    "StreamLimitReached",
    "StreamOpened",
    "StreamReset",
    "StreamWritable",
    "TransportDead",
]

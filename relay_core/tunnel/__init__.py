"""Our session protocol, sans-IO: bytes and events in, bytes and events out.

One session per client and agent outlives its transports; streams, sequence numbers and resume are here, encryption
(`relay_core.net.session.secure_channel`) and sockets are elsewhere. Nothing here reads a clock or draws a random
number. The wire format, the state machines and the threat model are in `docs/concepts/protocol.md`.
"""

from relay_core.tunnel.events import (
    DataReceived,
    EofReceived,
    Event,
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

"""The client's side of the first frames on a transport: HELLO or RESUME out, one answer in.

    new session:  HELLO --->  ... WELCOME  -> Attached
                              ... REFUSED  -> NotAttached
    resume:       RESUME ---> ... RESUMED  -> Attached     (the session changes over to this transport now)
                              ... REFUSED  -> NotAttached  (a final refusal ends the session, others do not touch it)

The transport that the session used before stays in use until the answer has been verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from relay_core.tunnel import frames
from relay_core.tunnel.frames import Frame, split_first
from relay_core.tunnel.limits import Settings
from relay_core.tunnel.messages import Greeting, Refused, Resume, Resumed, Welcome
from relay_core.tunnel.outcomes import ProtocolBreach, Refusal, Role
from relay_core.tunnel.payloads import JsonObject
from relay_core.tunnel.session import Session

__all__ = ["Attached", "ClientHandshake", "ClientHello", "ClientResume", "NotAttached"]


@dataclass(frozen=True)
class Attached:
    """A transport belongs to a session now."""

    session: Session
    epoch: int
    """The transport's number in every call of the session."""
    new: bool
    """Whether the session began with this transport."""
    reply: bytes = b""
    """What has to leave before anything else; empty on the client."""
    trailing: bytes = b""
    """What came after the first frame, for `Session.receive_data`."""


@dataclass(frozen=True)
class NotAttached:
    """A transport is of no use: send `reply` and close it."""

    refusal: Refusal
    text: str
    reply: bytes = b""
    """What tells the peer; empty on the client."""


class ClientHandshake(Protocol):
    """What a driver sees of `ClientHello` and `ClientResume`."""

    def data_to_send(self) -> bytes:
        """Return the first frame."""

    def receive_data(self, data: bytes, now: float) -> Attached | NotAttached | None:
        """Take what the transport delivered; None until the answer is complete."""


class _FirstAnswer:
    """Collects the agent's first frame."""

    def __init__(self) -> None:
        self._buffer = b""

    def receive_data(self, data: bytes, now: float) -> Attached | NotAttached | None:
        """Take what the transport delivered; None until the answer is complete."""
        self._buffer += data
        try:
            split = split_first(self._buffer)
            if split is None:
                return None
            frame, trailing = split
            if frame.type == frames.REFUSED:
                refused = Refused.decode(frame.payload)
                return self._refused(refused.refusal, refused.text)
            return self._answered(frame, trailing, now)
        except ProtocolBreach as breach:
            return NotAttached(Refusal.MALFORMED, str(breach))

    def _refused(self, refusal: Refusal, text: str) -> NotAttached:
        return NotAttached(refusal, text)

    def _answered(self, frame: Frame, trailing: bytes, now: float) -> Attached | NotAttached:
        raise NotImplementedError

"""Senders that are waiting for a listener.

A pending sender is identified by the GUID of its request and a secret of 128 bits. Both are in the address that is sent
to one listener and are the only credential of its accept request. An address can be used once, and only while its
sender is waiting.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from relay_core.hyco.http.messages import Response
from relay_server.connection.request_reader import Handshake
from relay_server.protocol.refusals import Refusal
from relay_server.protocol.requests import RelayRequest
from relay_server.protocol.tracking import guid_of, new_guid, tracking_id
from relay_server.relaying.http_rendezvous import HttpRendezvous

__all__ = ["SECRET_PARAMETER", "ControlResponse", "Outcome", "PendingSender", "Rejection", "Rendezvous"]

SECRET_PARAMETER = "sb-hc-secret"  # noqa: S105 - a parameter's name
"""The parameter for the secret; Azure has no such parameter. The prefix makes clients treat it as part of the protocol.
The value is hex, which needs no escaping."""


@dataclass(frozen=True)
class Rejection:
    """A listener's rejection of a sender."""

    status: int
    reason: str


@dataclass(frozen=True)
class ControlResponse:
    """A listener's response to an HTTP request, sent on its control channel."""

    response: Response
    body: bytes = field(repr=False)


Outcome: TypeAlias = Rejection | Refusal | ControlResponse | HttpRendezvous | None


@dataclass(frozen=True, eq=False)
class PendingSender:
    """A sender whose request is not answered yet."""

    id: str
    """`GUID_G0`, as in the accept message."""
    secret: str = field(repr=False)
    request: RelayRequest
    handshake: Handshake
    outcome: asyncio.Future[Outcome]
    """The result; None if a listener has accepted and relaying has started."""


class Rendezvous:
    """All pending senders.

    Args:
        new_secret: Returns 128 random bits as hex.
    """

    def __init__(self, *, new_secret: Callable[[], str]) -> None:
        self._pending: dict[str, PendingSender] = {}
        self._new_secret = new_secret

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, request: RelayRequest, handshake: Handshake) -> PendingSender:
        """Add a sender, under its own id unless another sender is waiting with the same id."""
        identity = request.tracking
        if self._key(identity) in self._pending:
            identity = tracking_id(new_guid())
        pending = PendingSender(
            id=identity,
            secret=self._new_secret(),
            request=request,
            handshake=handshake,
            outcome=asyncio.get_running_loop().create_future(),
        )
        self._pending[self._key(identity)] = pending
        return pending

    def take(self, identity: str | None, secret: str | None) -> PendingSender | None:
        """Remove and return the sender with this id and secret, or return None."""
        key = self._key(identity)
        pending = self._pending.get(key)
        # The id alone does not authenticate a listener: the sender may have chosen it.
        if pending is None or not hmac.compare_digest(pending.secret.encode(), (secret or "").encode()):
            return None
        del self._pending[key]
        return pending

    def refuse_all(self, refusal: Refusal) -> None:
        """Refuse all senders with the same error."""
        waiting = list(self._pending.values())
        self._pending.clear()
        for pending in waiting:
            if not pending.outcome.done():
                pending.outcome.set_result(refusal)

    def forget(self, pending: PendingSender) -> None:
        """Remove a sender."""
        key = self._key(pending.id)
        if self._pending.get(key) is pending:
            del self._pending[key]

    @staticmethod
    def _key(identity: str | None) -> str:
        return (guid_of(identity) or "").lower()

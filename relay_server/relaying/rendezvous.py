"""Senders that wait for their listener.

Each waits under the GUID of its request and a secret of 128 bits; both stand in the address that one listener is
told to dial, and knowing them is the only credential of that call. An address works once, and only while its sender
waits.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from relay_server.connection.request_reader import Handshake
from relay_server.protocol.refusals import Refusal
from relay_server.protocol.requests import HybridRequest
from relay_server.protocol.tracking import guid_of, new_guid, tracking_id

__all__ = ["SECRET_PARAMETER", "PendingSender", "Rejection", "Rendezvous"]

SECRET_PARAMETER = "sb-hc-secret"  # noqa: S105 - a parameter's name
"""Our own; its prefix makes every client treat it as the protocol's, and plain hex survives naive parsers."""


@dataclass(frozen=True)
class Rejection:
    """The listener's answer to a sender that it does not want."""

    status: int
    reason: str


@dataclass(frozen=True, eq=False)
class PendingSender:
    """A sender whose 101 is held back."""

    id: str
    """`GUID_G0`, as the listener gets it."""
    secret: str = field(repr=False)
    request: HybridRequest
    handshake: Handshake
    outcome: asyncio.Future[Rejection | Refusal | None]
    """None when it was accepted and is relayed already."""


class Rendezvous:
    """Everybody who waits.

    Args:
        new_secret: Returns 128 random bits as hex.
    """

    def __init__(self, *, new_secret: Callable[[], str]) -> None:
        self._pending: dict[str, PendingSender] = {}
        self._new_secret = new_secret

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, request: HybridRequest, handshake: Handshake) -> PendingSender:
        """Let a sender wait; the id is the sender's own unless another one waits under it."""
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
        """Return the sender that waits under this id and secret and forget it; None if there is none."""
        key = self._key(identity)
        pending = self._pending.get(key)
        if pending is None or not hmac.compare_digest(pending.secret.encode(), (secret or "").encode()):
            return None
        del self._pending[key]
        return pending

    def refuse_all(self, refusal: Refusal) -> None:
        """Let every sender have the same error."""
        waiting = list(self._pending.values())
        self._pending.clear()
        for pending in waiting:
            if not pending.outcome.done():
                pending.outcome.set_result(refusal)

    def forget(self, pending: PendingSender) -> None:
        """A sender waits no more."""
        key = self._key(pending.id)
        if self._pending.get(key) is pending:
            del self._pending[key]

    @staticmethod
    def _key(identity: str | None) -> str:
        return (guid_of(identity) or "").lower()

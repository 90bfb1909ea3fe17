"""The answers to `$hc` requests: who may listen, who meets whom, and what everybody else is told.

The order of checks is part of the protocol: token, then existence, then listeners. Without a valid token nobody
learns which hybrid connections exist.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

from relay_core.net.compat import TIMEOUT_ERRORS, timeout
from relay_server.authorization import Authorizer, Grant
from relay_server.config import DelayProfile, HybridConnection, RelayConfig, Right
from relay_server.connection import Connection
from relay_server.control import ControlChannel
from relay_server.handshake import Handshake
from relay_server.http import error_answer, plain_answer, switching_protocols
from relay_server.metrics import Counters
from relay_server.refusals import (
    Refusal,
    accept_timed_out,
    bad_request,
    no_http,
    no_listeners,
    not_found,
)
from relay_server.registry import Registry
from relay_server.relaying import RelayedPair
from relay_server.rendezvous import SECRET_PARAMETER, PendingSender, Rejection, Rendezvous
from relay_server.requests import HybridRequest, is_hybrid
from relay_server.tracking import error_phrase, guid_of, new_guid

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)

HEAD_TIMEOUT = 10.0
"""Seconds for a request's head; a peer that needs longer keeps a socket for nothing."""
MAX_TRACKED_PATH = 260
"""Characters of an asked path that an error repeats."""


class Gateway:
    """Serves fresh connections until each is answered.

    Args:
        config: What is served.
        authorizer: Checks tokens.
        public_address: Returns the `host:port` that listeners dial.
    """

    def __init__(self, config: RelayConfig, *, authorizer: Authorizer, public_address: Callable[[], str]) -> None:
        self.registry: Registry[ControlChannel] = Registry(
            config.hybrid_connections, max_listeners=config.limits.max_listeners, choose=secrets.randbelow
        )
        self.rendezvous = Rendezvous(new_secret=lambda: secrets.token_hex(16))
        self.pairs: set[RelayedPair] = set()
        self.counters = Counters()
        self._config = config
        self._delays = config.delays or DelayProfile()
        self._authorizer = authorizer
        self._public_address = public_address

    async def serve(self, handshake: Handshake) -> None:
        """Answer one connection's request; returns when it is answered or gone."""
        tracking: str | None = None
        path = ""
        try:
            async with timeout(HEAD_TIMEOUT):
                head = await handshake.head()
            if self._delays.lane:
                await asyncio.sleep(2 * self._delays.lane * self._delays.handshake_round_trips)
            if not is_hybrid(head):
                raise no_http()
            request = HybridRequest.parse(head)
            tracking, path = request.tracking, request.path
            await self._dispatch(request, handshake)
        except TIMEOUT_ERRORS:
            handshake.connection.abort()
        except Refusal as refusal:
            self.counters.refused += 1
            self._refuse(handshake.connection, refusal, tracking, path)

    def refuse_all(self, refusal: Refusal) -> None:
        """Answer every waiting sender with an error."""
        for pending in self.rendezvous.everybody():
            pending.outcome.set_exception(refusal)

    def _refuse(self, connection: Connection, refusal: Refusal, tracking: str | None, path: str) -> None:
        tracking = tracking or f"{new_guid()}_G0"
        system = f"sb://{self._config.namespace}/{path[:MAX_TRACKED_PATH]}"
        phrase = error_phrase(refusal.message, tracking=tracking, system=system, now=time.time())
        connection.write(error_answer(refusal, phrase, tracking=tracking))
        connection.close()

    async def _dispatch(self, request: HybridRequest, handshake: Handshake) -> None:
        accept = request.head.check_upgrade()
        match request.action:
            case "accept":
                self._accept(request, handshake, accept)
            case "listen":
                await self._listen(request, handshake, accept)
            case _:
                await self._connect(request, handshake, accept)

    async def _authorize(self, request: HybridRequest, right: Right) -> tuple[HybridConnection, Grant | None]:
        if self._delays.authorization:
            await asyncio.sleep(self._delays.authorization)
        connection = self.registry.find(request.segments)
        grant = self._authorizer.check(
            request.token, right=right, path=request.path, connection=connection, now=time.time()
        )
        if connection is None:
            raise not_found()
        return connection, grant

    async def _listen(self, request: HybridRequest, handshake: Handshake, accept: str) -> None:
        hybrid_connection, grant = await self._authorize(request, Right.LISTEN)
        assert grant is not None  # noqa: S101 - a listener without a token was refused
        self.registry.check_room(hybrid_connection)
        ...

"""The agent: listens on a hybrid connection and connects the clients that come to its targets."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping

from relay_agent.target import Target, serve_stream
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.hyco.address import Endpoint
from relay_core.hyco.credential import Credential
from relay_core.hyco.listener import ListenerState
from relay_core.net.listener import HybridConnectionListener
from relay_core.net.offer import Offer
from relay_core.net.pump import Traffic
from relay_core.net.rendezvous import PORT_HEADER, PROBE_HEADER, RendezvousStream
from relay_core.net.tasks import TaskSet

__all__ = ["Agent"]

WRONG_PORT_STATUS = 421
"""Misdirected Request (RFC 9110, 15.5.20): another agent on this hybrid connection may be the right one."""

logger = logging.getLogger(__name__)


class Agent:
    """Serves targets to the clients of one hybrid connection, until it is cancelled or cannot listen any more.

    Args:
        endpoint: The hybrid connection.
        credential: Must carry the Listen right.
        targets: What clients may reach, by logical port; nothing else on this machine is reachable through it.
        tls: Defaults to the system's authorities and `RELAY_CA_FILE`.
        on_listening: Called each time the control channel is up.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credential: Credential,
        targets: Mapping[int, Target],
        *,
        tls: ssl.SSLContext | None = None,
        on_listening: Callable[[], None] = lambda: None,
    ) -> None:
        self._endpoint = endpoint
        self._targets = dict(targets)
        self._on_listening = on_listening
        self._told = ""
        self._listener = HybridConnectionListener(endpoint, credential, tls=tls, on_state=self._show_state)

    def __repr__(self) -> str:
        return f"<Agent {self._listener!r} ports={sorted(self._targets)}>"

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            RelayDebugError: listening has become impossible, and why.
        """
        async with TaskSet() as connections, self._listener:
            async for offer in self._listener:
                connections.spawn(self._serve(offer), name=f"offer {offer.id}")

    async def _serve(self, offer: Offer) -> None:
        refusal = self._refusal(offer)
        if refusal:
            await offer.reject(WRONG_PORT_STATUS, refusal)
            return
        target = self._target_of(offer)
        if target is None:  # _refusal has said so
            return
        traffic = Traffic()
        try:
            stream = RendezvousStream(await offer.accept())
            logger.info("port %s: client connected", target)
            await serve_stream(target, stream, traffic)
        except ProtocolError as error:
            logger.warning("port %s: refused: %s", target, error)
        except ConnectionLost as lost:
            logger.info("port %s: client connection ended: %s", target, lost)
        except RelayDebugError as error:
            logger.warning("port %s: cannot meet the client: %s", target, error)
        else:
            logger.info("port %s: client left (%d bytes in, %d out)", target, traffic.received, traffic.sent)

    def _refusal(self, offer: Offer) -> str:
        """Return why this offer is not for this agent, or ""."""
        ports = ", ".join(str(port) for port in sorted(self._targets))
        if offer.header(PROBE_HEADER):
            return f"probe: this agent serves {ports}"
        if self._target_of(offer) is None:
            return f"this agent serves {ports}"
        return ""

    def _target_of(self, offer: Offer) -> Target | None:
        """Return the target a sender asks for; one that asks for none gets the only one there is."""
        asked = offer.header(PORT_HEADER)
        if asked is None:
            return next(iter(self._targets.values())) if len(self._targets) == 1 else None
        return self._targets.get(int(asked)) if asked.isascii() and asked.isdigit() else None

    def _show_state(self, state: ListenerState, error: RelayDebugError | None) -> None:
        if state is ListenerState.LISTENING:
            ports = ", ".join(str(target) for target in self._targets.values())
            self._told = ""
            logger.info("listening on '%s' (namespace %s), port %s", self._endpoint.path, self._endpoint.host, ports)
            self._on_listening()
        elif state is ListenerState.WAITING and error is not None:
            self._show_trouble(error)

    def _show_trouble(self, error: RelayDebugError) -> None:
        """Say what is wrong once, and again only when it is something else."""
        text = str(error)
        if text != self._told:
            logger.warning("not listening, trying again: %s", text)
            self._told = text

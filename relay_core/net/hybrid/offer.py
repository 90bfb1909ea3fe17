"""An offer: a sender that is waiting to be accepted or rejected."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.hyco.address import Endpoint, reject_url, strip_parameters
from relay_core.hyco.messages import Accept
from relay_core.hyco.remote_endpoint import RemoteEndpoint
from relay_core.net.websocket.connection import WebSocket
from relay_core.net.websocket.handshake import open_websocket
from relay_core.net.websocket.opening_errors import HandshakeRefused

__all__ = ["Offer"]


class Offer:
    """A sender's connection request, to be accepted or rejected once, within 30 seconds."""

    def __init__(self, message: Accept, endpoint: Endpoint, tls: ssl.SSLContext) -> None:
        self._message = message
        self._endpoint = endpoint
        self._tls = tls

    def __repr__(self) -> str:
        return f"<Offer {self.id} on {self._endpoint.path}>"

    @property
    def id(self) -> str:
        """The relay's tracking id, `GUID_Gn`."""
        return self._message.id

    @property
    def headers(self) -> Mapping[str, str]:
        """The sender's request headers without its token. They may contain cookies and must not be logged."""
        return self._message.connect_headers

    @property
    def path(self) -> str:
        """The rest of the sender's path after the hybrid connection's name, e.g. `/logs`, or ""."""
        path = unquote(urlsplit(self._message.address).path)
        return path[len(f"/$hc/{self._endpoint.path}") :]

    @property
    def query(self) -> str:
        """The sender's query string without the protocol's own parameters, otherwise unchanged."""
        return strip_parameters(urlsplit(self._message.address).query)

    @property
    def remote_endpoint(self) -> RemoteEndpoint | None:
        """The sender's network address as seen by the relay."""
        return self._message.remote_endpoint

    def header(self, name: str) -> str | None:
        """Return the sender's header `name` (case-insensitive), or None."""
        return self._message.header(name)

    async def accept(self) -> WebSocket:
        """Open the rendezvous with the sender.

        Raises:
            ConnectionLost: The sender has disconnected or was not accepted in time.
            RelayUnreachable, UntrustedCertificate: The rendezvous address cannot be reached.
        """
        # Like the official listeners, select the first subprotocol that the sender offers.
        offered = self.header("Sec-WebSocket-Protocol") or ""
        first = offered.split(",")[0].strip()
        try:
            return await open_websocket(self._message.address, tls=self._tls, subprotocols=[first] if first else [])
        except HandshakeRefused as refusal:
            raise ConnectionLost(
                f"the sender disconnected before it was accepted ({refusal.status})", reason=refusal.reason
            ) from None

    async def reject(self, status: int, reason: str) -> None:
        """Reject the sender, which receives `status` (100-999) and `reason` as the HTTP response to its handshake.

        If the relay cannot be reached, no error is raised; the sender's request ends at the relay's time limit.
        """
        try:
            websocket = await open_websocket(
                reject_url(self._message.address, status=status, reason=reason), tls=self._tls
            )
        except (HandshakeRefused, RelayDebugError):
            return  # the normal case: the relay answers 410 Gone after it has forwarded the rejection
        websocket.abort()

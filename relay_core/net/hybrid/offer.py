"""An offer: a sender that waits to be accepted or refused."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.hyco.address import Endpoint, reject_url, strip_parameters
from relay_core.hyco.messages import Accept, RemoteEndpoint
from relay_core.net.websocket.handshake import HandshakeRefused, WebSocket, open_websocket

__all__ = ["Offer"]


class Offer:
    """A sender's request for a connection; accept or reject it once, within 30 seconds."""

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
        """The sender's request headers, without its token. They may hold its cookies: do not log them."""
        return self._message.connect_headers

    @property
    def path(self) -> str:
        """What the sender wrote behind the hybrid connection's name, e.g. `/logs`, or ""."""
        path = unquote(urlsplit(self._message.address).path)
        return path[len(f"/$hc/{self._endpoint.path}") :]

    @property
    def query(self) -> str:
        """The sender's query without the protocol's own parameters, byte for byte."""
        return strip_parameters(urlsplit(self._message.address).query)

    @property
    def remote_endpoint(self) -> RemoteEndpoint | None:
        """The sender's address as the relay saw it."""
        return self._message.remote_endpoint

    def header(self, name: str) -> str | None:
        """Return one of the sender's headers, its name in any case, or None."""
        return self._message.header(name)

    async def accept(self) -> WebSocket:
        """Meet the sender; of the subprotocols it offers, its first is chosen, as all official listeners do.

        Raises:
            ConnectionLost: the sender has left, or waited too long.
            RelayUnreachable, UntrustedCertificate: the rendezvous address cannot be reached from here.
        """
        offered = self.header("Sec-WebSocket-Protocol") or ""
        first = offered.split(",")[0].strip()
        try:
            return await open_websocket(self._message.address, tls=self._tls, subprotocols=[first] if first else [])
        except HandshakeRefused as refusal:
            raise ConnectionLost(
                f"the sender left before it was accepted ({refusal.status})", reason=refusal.reason
            ) from None

    async def reject(self, status: int, reason: str) -> None:
        """Refuse the sender; it sees `status` (100-999) and `reason` as the HTTP answer to its handshake.

        Best effort: if the relay cannot be told, the sender runs into the relay's time limit.
        """
        try:
            websocket = await open_websocket(
                reject_url(self._message.address, status=status, reason=reason), tls=self._tls
            )
        except (HandshakeRefused, RelayDebugError):
            return  # 410 Gone is the relay's way to say that it passed the refusal on.
        websocket.abort()

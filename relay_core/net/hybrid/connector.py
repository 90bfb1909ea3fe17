"""The sender's side of a hybrid connection.

A dial that takes long is repeated (`relay_core.net.websocket.handshake`), so the listener may get several offers for
one `connect`. It accepts each, and sees all but one close before they are used.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

from relay_core.hyco.address import TOKEN_HEADER, Endpoint
from relay_core.hyco.outcome import refused_connect
from relay_core.hyco.sas import Credential
from relay_core.net.relay_tls import client_tls
from relay_core.net.websocket.connection import WebSocket
from relay_core.net.websocket.handshake import open_websocket
from relay_core.net.websocket.opening_errors import OPEN_TIMEOUT, HandshakeRefused


async def connect(
    endpoint: Endpoint,
    credential: Credential,
    *,
    headers: Mapping[str, str] | None = None,
    subprotocols: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
    timeout: float = OPEN_TIMEOUT,
) -> WebSocket:
    """Connect to a listener of a hybrid connection; return the WebSocket when the listener has accepted.

    Args:
        endpoint: The hybrid connection.
        credential: A credential with the Send right.
        headers: Request headers; the listener receives them before it accepts.
        subprotocols: WebSocket subprotocols in order of preference.
        tls: TLS context; by default it trusts the system's certificate authorities and `RELAY_CA_FILE`.
        timeout: Seconds for the connection attempt.

    Raises:
        NoListener: The hybrid connection has no listener.
        Rejected: The listener refused; `status` and `reason` are the listener's.
        Unauthorized: The relay refused the credential.
        HybridConnectionNotFound: The namespace has no such hybrid connection.
        RelayDebugError: Another error of `relay_core.errors` prevented the connection.
    """
    token = await credential.token(endpoint)
    request_headers = dict(headers or {})
    if token.value:
        request_headers[TOKEN_HEADER] = token.value
    try:
        return await open_websocket(
            endpoint.connect_url(),
            tls=tls or client_tls(),
            headers=request_headers,
            subprotocols=subprotocols,
            timeout=timeout,
            is_repeatable=True,
        )
    except HandshakeRefused as refusal:
        if refusal.status in {401, 403}:
            credential.refused()
        raise refused_connect(refusal.status, refusal.reason, endpoint) from None

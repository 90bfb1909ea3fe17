"""The sender's side of HTTP over a hybrid connection: any HTTP client with the relay's token in a header."""

from __future__ import annotations

from relay_core.hyco.address import TOKEN_HEADER, Endpoint
from relay_core.hyco.credential import Credential

__all__ = ["http_headers"]


async def http_headers(endpoint: Endpoint, credential: Credential) -> dict[str, str]:
    """Return the header that authorizes an HTTP request to `endpoint.http_url()`; empty if the token is empty.

    Args:
        endpoint: The hybrid connection.
        credential: A credential with the Send right.

    Raises:
        RelayDebugError: The credential has no token.
    """
    # Requested before each request, because a credential caches its token and renews it before it expires.
    token = await credential.token(endpoint)
    return {TOKEN_HEADER: token.value} if token.value else {}
